/** Samples that a recorder holds at most; when they are full every two become one, and come half as often. */
export const mostSamples = 1024;

/** Bytes of a sample: its time and three readings as binary64. */
export const sampleBytes = 32;

/**
 * What a recorder holds while a trial runs, reserved ahead so that sampling allocates nothing. Charged to the session's ledger
 * as `recording`, and inside the allowance of every arm, recording or not, so that an arm without samples has the same plan.
 */
export const recorderRoomBytes = mostSamples * sampleBytes;
