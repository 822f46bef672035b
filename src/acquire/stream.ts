import type { AcquisitionPolicy } from './policy.js';

/** The honest dense control: all neuron rows move in every pass, contiguous, read ahead of their use. */
export const stream: AcquisitionPolicy = {
  name: 'stream',
  summary: 'second projections streamed whole in every pass, read ahead of use',
  residence: 'never',
  rows: { prefill: 'streamed', decode: 'streamed' },
  skipsZeros: { prefill: false, decode: false },
};
