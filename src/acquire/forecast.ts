import type { AcquisitionPolicy } from './policy.js';

/** Guesses that the token before was like this one; what was not guessed comes when it is known. */
export const forecast: AcquisitionPolicy = {
  name: 'forecast',
  summary: 'rows guessed from the token before fetched early, the rest on demand',
  residence: 'never',
  rows: { prefill: 'forecast', decode: 'forecast' },
  skipsZeros: { prefill: true, decode: true },
};
