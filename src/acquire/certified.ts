import type { AcquisitionPolicy } from './policy.js';

/**
 * New tokens: a low-bit copy of each first projection (or gate) proves most of its neurons inactive; only rows that it
 * cannot decide are fetched, and of the second projection only those of active neurons. Prompts touch most rows, so that
 * little could be proven for all of their positions at once, and are streamed.
 */
export const certified: AcquisitionPolicy = {
  name: 'certified',
  summary: 'prompts by stream; new tokens: rows that no certificate proves inactive',
  residence: 'if-all-fits',
  rows: { prefill: 'streamed', decode: 'certified' },
  skipsZeros: { prefill: false, decode: true },
};
