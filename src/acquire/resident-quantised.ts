import type { AcquisitionPolicy } from './policy.js';

/** The rivals that a small card would really use: weight-only quantisation, everything held. Other numbers, never exact. */
export const residentQ8: AcquisitionPolicy = {
  name: 'resident-q8',
  summary: 'everything held, matrices in 8 bits (a scale an output): not exact',
  residence: 'whole-model',
  rows: { prefill: 'streamed', decode: 'streamed' },
  skipsZeros: { prefill: false, decode: false },
  quantised: 'q8',
};

export const residentQ4: AcquisitionPolicy = {
  ...residentQ8,
  name: 'resident-q4',
  summary: 'everything held, matrices in 4 bits (a scale for 32 inputs): not exact',
  quantised: 'q4',
};
