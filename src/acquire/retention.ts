import type { AcquisitionPolicy } from './policy.js';

/** Rows of neurons that were active before stay, by use (lru) or by a recorded profile (hot). */
export const retention: AcquisitionPolicy = {
  name: 'retention',
  summary: 'rows kept from before, lru or a hot set; only the missing ones moved',
  residence: 'never',
  rows: { prefill: 'retained', decode: 'retained' },
  skipsZeros: { prefill: true, decode: true },
};
