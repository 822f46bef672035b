import type { AcquisitionPolicy } from './policy.js';

/** Every weight is held; rows of zero activations are not read. */
export const residentSparse: AcquisitionPolicy = {
  name: 'resident-sparse',
  summary: 'all weights resident, rows of zero activations skipped',
  residence: 'whole-model',
  rows: { prefill: 'streamed', decode: 'streamed' },
  skipsZeros: { prefill: true, decode: true },
};
