/**
 * How the shared memory of the WebAssembly kernels is laid out below its heap; wasm/control.as.ts and
 * wasm/projection.as.ts name the same bytes. All offsets are in bytes, all words Int32.
 */

/** Op at which a program stopped and why, see `failureCodes`; 0 while nothing failed. */
export const failureAt = 76;
/** Counts dispatched programs; threads sleep on it. */
export const dispatchAt = 128;
/** Ops of the dispatched program; -1 asks the threads to end. */
export const opCountAt = 132;
/** One word an op: the next piece of its work. */
export const ticketsAt = 1024;
export const programAt = 4096;
/** Ops of one dispatch; longer submissions take several. */
export const opsPerDispatch = 256;

/** Panels and lists of one thread: 32,768 + 32 * 4,160 for weights + 131,072 for rows of x, and a page to spare. */
export const scratchBytes = 32_768 + 32 * 4160 + 131_072 + 4096;

export const largestThreadCount = 256;

/** Where the scratch of a thread begins. */
export function scratchAt(thread: number): number {
  return programAt + opsPerDispatch * 256 + thread * scratchBytes;
}

/** Codes in the low two bits of the failure word; the rest is 1 + the index of the op. */
export const failureCodes = { kvOverflow: 1, indexOutOfRange: 2 } as const;

export const pageBytes = 65_536;
export const largestPages = 65_536; // 32-bit addresses

/**
 * Never given out at the end of the memory: kernels may load up to 60 bytes past a row, and an address one past the
 * last byte has to fit 32 bits.
 */
export const guardBytes = 64;
