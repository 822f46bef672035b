import { availableParallelism } from 'node:os';
import { ExecutionError, SetupError, UsageError } from '../../base/errors.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import type { Backend, BackendInfo, Transfer, TransferFile, TransferReport } from '../backend.js';
import { notHeld, requireFilling, requireSpan } from '../buffer-checks.js';
import { encodePlaced } from '../encoded-program.js';
import type { PlacedOp } from '../ops.js';
import { submissionError, transferError } from './native-errors.js';
import type { NativeLibrary } from './native-library.js';
import { type InstructionSet, instructionSets, loadNative } from './native-status.js';

export interface NativeOptions {
  /** Compute threads, 1 to 256. */
  readonly threads: number;
  /** Default: the best that the processor has. */
  readonly instructionSet?: InstructionSet;
}

/**
 * Opens the native CPU kernels. Throws `SetupError` `native-unavailable` where they are not built or do not load,
 * `instruction-set-unavailable` where the processor lacks the one asked for, `out-of-threads` where the system gives no
 * threads; `UsageError` `bad-threads` for a count outside 1 to 256.
 */
export async function openNative(options: NativeOptions): Promise<NativeBackend> {
  const { threads } = options;
  if (!Number.isInteger(threads) || threads < 1 || threads > 256) {
    throw new UsageError('bad-threads', `Cannot open native kernels with ${threads} threads: give 1 to 256`, {
      threads,
    });
  }
  const { library, status } = loadNative();
  if (library === null) {
    throw new SetupError('native-unavailable', `Cannot open native kernels: ${status.reason}`);
  }
  const instructionSet = options.instructionSet ?? status.instructionSets.at(-1) ?? 'baseline';
  if (!status.instructionSets.includes(instructionSet)) {
    throw new SetupError(
      'instruction-set-unavailable',
      `Cannot open native kernels for "${instructionSet}": this processor and build have ${status.instructionSets.map((set) => `"${set}"`).join(', ')}`,
    );
  }
  // Readers mostly wait for the disk; beyond four a disk's queue is full.
  const readers = Math.min(4, Math.max(2, availableParallelism()));
  const handle = library.open(threads, instructionSets.indexOf(instructionSet), readers);
  if (handle === null) {
    throw new SetupError(
      'out-of-threads',
      `Cannot open native kernels: the system refused ${threads} threads`,
    );
  }
  return new NativeBackend(library, handle, {
    name: 'cpu',
    kernels: `native ${instructionSet}`,
    reason: options.instructionSet === undefined ? status.reason : `"${instructionSet}" was asked for`,
    numerics: 'portable',
    threads,
    kernelDigest: status.build?.librarySha256 ?? null,
  });
}

/** The native library as a `Backend`. Made by `openNative`. */
export class NativeBackend implements Backend {
  readonly info: BackendInfo;
  readonly parallelism: number;
  readonly addressableBytes = Infinity;
  readonly #library: NativeLibrary;
  readonly #handle: bigint;
  readonly #buffers = new Set<DeviceBuffer>();
  #submitted: Promise<void> = Promise.resolve();
  #transferred: Promise<void> = Promise.resolve();
  #closing: Promise<void> | null = null;

  constructor(library: NativeLibrary, handle: bigint, info: BackendInfo) {
    this.#library = library;
    this.#handle = handle;
    this.info = Object.freeze(info);
    this.parallelism = info.threads;
  }

  allocate(request: AllocationRequest): DeviceBuffer {
    this.#checkOpen('allocate');
    const { label, cause, byteLength } = request;
    if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
      throw new RangeError(`Cannot allocate "${label}": ${byteLength} is no count of bytes`);
    }
    const address = this.#library.allocate(byteLength);
    if (address === 0) {
      throw new SetupError(
        'out-of-memory',
        `Cannot allocate "${label}": the system refused ${byteLength} bytes`,
        {
          label,
          byteLength: String(byteLength),
        },
      );
    }
    const buffer = Object.freeze({ label, cause, address, byteLength });
    this.#buffers.add(buffer);
    return buffer;
  }

  release(buffer: DeviceBuffer): void {
    if (!this.#buffers.delete(buffer)) {
      throw notHeld(buffer);
    }
    this.#library.release(buffer.address, buffer.byteLength);
  }

  submit(ops: readonly PlacedOp[]): Promise<void> {
    this.#checkOpen('submit');
    const program = encodePlaced(ops);
    // One submission after another: the library runs one program at a time, and a failed one holds up no later one.
    const running = this.#submitted.then(async () => {
      if (ops.length === 0) return;
      const status = await this.#library.submit(this.#handle, program, ops.length);
      if (status !== 0) throw submissionError(status, ops);
    });
    this.#submitted = settled(running);
    return running;
  }

  write(target: Span, bytes: Uint8Array): void {
    this.#checkOpen('write');
    requireSpan('write', target, this.#buffers.has(target.buffer));
    requireFilling(target, bytes);
    if (bytes.byteLength > 0) this.#library.copyIn(target.buffer.address + target.byteOffset, bytes);
  }

  async read(source: Span): Promise<Uint8Array> {
    this.#checkOpen('read');
    await this.#submitted;
    this.#checkOpen('read');
    requireSpan('read', source, this.#buffers.has(source.buffer));
    const bytes = new Uint8Array(source.byteLength);
    if (bytes.byteLength > 0) this.#library.copyOut(bytes, source.buffer.address + source.byteOffset);
    return bytes;
  }

  transfer(transfers: readonly Transfer[]): Promise<TransferReport> {
    this.#checkOpen('transfer');
    const regions = new Float64Array(transfers.length * 4);
    let requestedBytes = 0;
    transfers.forEach(({ file, position, target }, index) => {
      requireSpan('transfer', target, this.#buffers.has(target.buffer));
      regions.set(
        [file.descriptor, position, target.buffer.address + target.byteOffset, target.byteLength],
        index * 4,
      );
      requestedBytes += target.byteLength;
    });
    const moving = this.#transferred.then(async () => {
      const start = process.hrtime.bigint();
      if (transfers.length > 0) {
        const failure = new Float64Array(2);
        const status = await this.#library.transfer(this.#handle, regions, transfers.length, failure);
        if (status !== 0) throw transferError(status, failure, transfers);
      }
      return { requestedBytes, elapsedNs: process.hrtime.bigint() - start };
    });
    this.#transferred = settled(moving);
    return moving;
  }

  prefetch(file: TransferFile, regions: readonly { position: number; byteLength: number }[]): void {
    this.#checkOpen('prefetch');
    if (regions.length === 0) return;
    const words = new Float64Array(regions.length * 2);
    regions.forEach(({ position, byteLength }, index) => {
      words.set([position, byteLength], index * 2);
    });
    this.#library.prefetch(file.descriptor, words, regions.length);
  }

  /** Reads `count` floats (a multiple of 65,536) with every thread: the ceiling that benchmarks compare with. */
  sum(source: Span, count: number): Promise<number> {
    this.#checkOpen('sum');
    requireSpan('sum', source, this.#buffers.has(source.buffer));
    const running = this.#submitted.then(() =>
      this.#library.sum(this.#handle, source.buffer.address + source.byteOffset, count),
    );
    this.#submitted = settled(running);
    return running;
  }

  close(): Promise<void> {
    this.#closing ??= Promise.all([this.#submitted, this.#transferred]).then(() => {
      for (const buffer of this.#buffers) this.#library.release(buffer.address, buffer.byteLength);
      this.#buffers.clear();
      this.#library.close(this.#handle);
    });
    return this.#closing;
  }

  #checkOpen(action: string): void {
    if (this.#closing !== null) {
      throw new ExecutionError('backend-closed', `Cannot ${action}: the native backend is closed`);
    }
  }
}

/** Resolves when the promise is over, whichever way: the queue behind a failure goes on. */
function settled(promise: Promise<unknown>): Promise<void> {
  return promise.then(
    () => {},
    () => {},
  );
}
