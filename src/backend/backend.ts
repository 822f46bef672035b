import type { BudgetComponent } from '../memory/budget.js';
import type { AllocationRequest, Allocator, DeviceBuffer, Span } from '../memory/buffers.js';
import type { PlacedOp } from './ops.js';

/** A region of an open file that is to land in a buffer: one extent of weights, or one row. */
export interface Transfer {
  readonly file: TransferFile;
  readonly position: number; // byte offset in the file
  readonly target: Span; // its byteLength is what is read
  /** Set where the bytes are runs out of a mirrored matrix; `position` is then that of the whole matrix. */
  readonly runs?: Runs;
}

/** Equal runs of bytes at equal distances in a mirror; they land one behind another. */
export interface Runs {
  readonly offset: number; // of the first one in the mirror
  readonly count: number;
  readonly byteLength: number; // of each
  readonly pitch: number; // from one to the next; count * pitch is the mirror's length
}

/** A matrix of 2- or 4-byte elements as it lies in a file, `[rows, columns]`. */
export interface StoredShape {
  readonly rows: number;
  readonly columns: number;
  readonly elementBytes: number;
}

/** A file that holds prepared weights, opened for reading. */
export interface TransferFile {
  readonly path: string;
  readonly descriptor: number;
}

/** What one `transfer` moved. */
export interface TransferReport {
  readonly requestedBytes: number;
  readonly elapsedNs: bigint;
}

/** What is known of a backend once it is open; goes into receipts and `doctor`. */
export interface BackendInfo {
  readonly name: string; // oracle, cpu, cuda, null
  readonly kernels: string; // for example "native avx2", "wasm simd", "typescript"
  readonly reason: string; // why these kernels were chosen
  readonly numerics: 'portable' | 'native';
  readonly threads: number;
  /** SHA-256 of the kernel library or module, or null where the program's own digest covers it. */
  readonly kernelDigest: string | null;
}

/** Bytes a second: copies from page-locked host memory, sparse rows that ops read from it, copies within the device. */
export interface DeviceRates {
  readonly denseBytesPerSecond: number;
  readonly rowBytesPerSecond: number;
  /** The same rows by what a set of them takes, and each byte more. */
  readonly rowSet?: { readonly seconds: number; readonly bytesPerSecond: number };
  readonly deviceBytesPerSecond: number;
}

/** Bytes of a device that are to lie elsewhere on it, too. */
export interface MoveWithin {
  readonly from: Span;
  readonly to: Span;
}

/** Bytes that have come from a device. */
export interface LandedBytes {
  /** Copies them out of the page-locked memory that they lie in, which is free then. To be called once. */
  take(): Uint8Array;
}

/**
 * Host memory beside a device that ops can read directly, over the link. What is mirrored there once is moved into device
 * buffers by the copy engine, without reading the file again.
 */
export interface HostTier {
  /**
   * Reads a file region into page-locked host memory; the buffer is released like any other, and counts as host bytes.
   * `transposed`: the mirror holds the transpose of the matrix that the region is, `[columns, rows]`; only transfers of
   * `runs` take from it. Rejects with `SetupError` `out-of-pinned-memory`, `ExecutionError` `short-read`.
   */
  mirror(
    file: TransferFile,
    position: number,
    request: AllocationRequest,
    transposed?: StoredShape,
  ): Promise<DeviceBuffer>;
  /**
   * Measures how fast bytes come over the link, and how fast the device copies within itself: a few milliseconds, in
   * memory of its own that is given back. `rowBytes`: of the rows that ops read from the host.
   */
  measureLink?(rowBytes: number): Promise<DeviceRates>;
  /** As `Backend.read`, for bytes that nobody needs at once: resolves when they have come, before they are copied again. */
  readLater?(source: Span): Promise<LandedBytes>;
  /** Copies spans of the device to others of equal lengths, in one go behind all submissions so far; resolves when they have landed. */
  moveWithin?(moves: readonly MoveWithin[]): Promise<void>;
  /** Page-locked bytes that the backend may take for copies, beside what is mirrored. */
  readonly bounceBytes?: number;
  /** Rows (tokens) of a pass up to which ops read a mirrored matrix once; beyond, its rows are better moved first. */
  readonly directRows: number;
}

/** What the process uses of a device, sampled as the system counts it. */
export interface SampledUse {
  /**
   * `process`: bytes of this process by the driver's own account. `baseline`: growth of the whole device since before
   * the context was made, what other processes do included. `shared`: the process had several backends open on it, so that
   * no sample is that of one.
   */
  readonly source: 'process' | 'baseline' | 'shared';
  readonly currentBytes: number;
  readonly peakBytes: number;
  readonly samples: number;
  /** Asked for between two samples, and the longest that passed. */
  readonly intervalMs: number;
  readonly longestGapMs: number;
}

/** Memory of a device: what the backend allocated, and what the system says. */
export interface DeviceUse {
  readonly allocatedBytes: number;
  readonly allocatedPeakBytes: number;
  /** Page-locked host memory now. */
  readonly pinnedBytes: number;
  /** Null where the system cannot tell. */
  readonly sampled: SampledUse | null;
}

/** Watches the memory of the device that a backend computes on. */
export interface DeviceWatch {
  /**
   * Samples from now until the backend closes. After a sample above the limit every call of the backend fails with
   * `BudgetError` `device-budget-exceeded`.
   */
  start(limitBytes: number): void;
  /** Takes one more sample. Rejects with the error that a sample above the limit has led to. */
  check(): Promise<void>;
  readonly use: DeviceUse;
}

/**
 * Where arithmetic happens. Submissions run in the order given; `transfer` runs beside them. All bytes come from the
 * `Allocator` side, so that the budget sees every one.
 */
export interface Backend extends Allocator {
  readonly info: BackendInfo;
  /** How many rows the attention scratch needs (threads, or blocks in flight). */
  readonly parallelism: number;
  /** Largest number of bytes that this backend can address in all, or `Infinity`. */
  readonly addressableBytes: number;
  /** Of a device of its own: bytes that no process uses now. */
  readonly freeBytes?: number;
  /** What the backend holds by itself, beside what it is asked for: part of every budget. */
  readonly overheads?: readonly BudgetComponent[];
  /** Where the backend computes on a device of its own: the host memory that it can reach. */
  readonly hostTier?: HostTier;
  /** Where the backend computes on a device of its own: what that device holds. */
  readonly deviceWatch?: DeviceWatch;
  /** Queues ops behind all earlier ones; resolves when they are done, rejects with the first `NumericsError`. */
  submit(ops: readonly PlacedOp[]): Promise<void>;
  /** Writes host bytes into a span. The caller has awaited every submission that reads or writes the span. */
  write(target: Span, bytes: Uint8Array): void;
  /** Copies a span to the host once all earlier submissions are done. */
  read(source: Span): Promise<Uint8Array>;
  /**
   * Moves file regions into buffers, beside running submissions; the caller keeps targets out of their way.
   * Rejects with `ExecutionError` `short-read` when a file ends early.
   */
  transfer(transfers: readonly Transfer[]): Promise<TransferReport>;
  /** Tells the system that these regions come soon; does nothing where the system has no such call. */
  prefetch(file: TransferFile, regions: readonly { position: number; byteLength: number }[]): void;
  /** Frees every buffer, stops every thread. Idempotent. */
  close(): Promise<void>;
}
