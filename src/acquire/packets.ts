import type { AcquisitionPolicy } from './policy.js';

/** Only the rows of active neurons move, less those that the budget had room to keep. */
export const packets: AcquisitionPolicy = {
  name: 'packets',
  summary: 'only rows of active neurons moved, spare budget keeps rows',
  residence: 'if-all-fits',
  rows: { prefill: 'packets', decode: 'packets' },
  skipsZeros: { prefill: true, decode: true },
};
