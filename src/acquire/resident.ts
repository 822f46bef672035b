import type { AcquisitionPolicy } from './policy.js';

/** The dense speed reference: every weight is held, every row is read. */
export const resident: AcquisitionPolicy = {
  name: 'resident',
  summary: 'all weights resident, every row read: the dense reference',
  residence: 'whole-model',
  rows: { prefill: 'streamed', decode: 'streamed' },
  skipsZeros: { prefill: false, decode: false },
};
