import type { AcquisitionPolicy } from './policy.js';

/** A control: the older mechanism, a packet with an 8-byte index a row. */
export const packetsStaged: AcquisitionPolicy = {
  name: 'packets-staged',
  summary: 'active rows and their indices gathered into one packet, then scattered',
  residence: 'never',
  rows: { prefill: 'staged', decode: 'staged' },
  skipsZeros: { prefill: true, decode: true },
};
