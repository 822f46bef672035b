import type { AcquisitionPolicy } from './policy.js';

/** A control: contiguous reads of 128 rows, most of them of inactive neurons. */
export const extents: AcquisitionPolicy = {
  name: 'extents',
  summary: 'blocks of 128 rows that hold an active one moved whole',
  residence: 'never',
  rows: { prefill: 'extents', decode: 'extents' },
  skipsZeros: { prefill: true, decode: true },
};
