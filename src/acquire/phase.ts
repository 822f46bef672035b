import type { AcquisitionPolicy } from './policy.js';

/** Prompts touch most rows and are streamed; new tokens touch few and get packets. */
export const phase: AcquisitionPolicy = {
  name: 'phase',
  summary: 'prompts by stream, new tokens by packets',
  residence: 'if-all-fits',
  rows: { prefill: 'streamed', decode: 'packets' },
  skipsZeros: { prefill: false, decode: true },
};
