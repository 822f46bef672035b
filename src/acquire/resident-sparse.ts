import type { AcquisitionPolicy } from './policy.js';

/** Every weight is held; new tokens do not read rows of zero activations. A prompt touches most rows: it reads all. */
export const residentSparse: AcquisitionPolicy = {
  name: 'resident-sparse',
  summary: 'all weights resident, new tokens skip rows of zero activations',
  residence: 'whole-model',
  rows: { prefill: 'streamed', decode: 'streamed' },
  skipsZeros: { prefill: false, decode: true },
};
