import { DefectError, ExecutionError, NumericsError, UsageError } from '../../base/errors.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import type { Backend, BackendInfo, Transfer, TransferReport } from '../backend.js';
import { requireFilling } from '../buffer-checks.js';
import { encodePlaced } from '../encoded-program.js';
import { transferIntoMemory } from '../memory-file-transfer.js';
import type { PlacedOp } from '../ops.js';
import { wordsPerOp } from './program.js';
import { failureCodes, largestPages, largestThreadCount, opsPerDispatch, pageBytes } from './wasm-layout.js';
import { smallestMemoryBytes, WasmMemory } from './wasm-memory.js';
import { loadWasmModule } from './wasm-module.js';
import { WasmThreads } from './wasm-threads.js';

export interface WasmOptions {
  /** Compute threads, 1 to 256. */
  readonly threads: number;
  /** Largest size of the memory in bytes, control words and scratch included. Default and most: 4 GiB. */
  readonly maximumBytes?: number;
  /** Why these kernels; goes into `info`. */
  readonly reason?: string;
}

/**
 * Opens the WebAssembly SIMD kernels, which need no compiler. Throws `SetupError` `not-built` where dist/ lacks them,
 * `out-of-memory` where the system gives no address space; `UsageError` `bad-threads` or `bad-memory-limit`.
 */
export async function openWasm(options: WasmOptions): Promise<WasmBackend> {
  const { threads, maximumBytes = largestPages * pageBytes } = options;
  if (!Number.isInteger(threads) || threads < 1 || threads > largestThreadCount) {
    throw new UsageError(
      'bad-threads',
      `Cannot open WebAssembly kernels with ${threads} threads: give 1 to ${largestThreadCount}`,
      { threads },
    );
  }
  const least = smallestMemoryBytes(threads);
  if (!(maximumBytes >= least && maximumBytes <= largestPages * pageBytes)) {
    throw new UsageError(
      'bad-memory-limit',
      `Cannot open WebAssembly kernels with a memory of ${maximumBytes} bytes: ${threads} threads need ${least} to ${largestPages * pageBytes}`,
      { maximumBytes, threads, smallestBytes: least },
    );
  }
  const { module, digest } = await loadWasmModule();
  const memory = new WasmMemory(threads, maximumBytes);
  const group = await WasmThreads.start(module, memory.memory, threads);
  return new WasmBackend(memory, group, {
    name: 'cpu',
    kernels: 'wasm simd',
    reason: options.reason ?? 'WebAssembly kernels were asked for',
    numerics: 'portable',
    threads,
    kernelDigest: digest,
  });
}

/**
 * The WebAssembly kernels as a `Backend`. Made by `openWasm`. Released bytes are given out again but stay with the
 * process until `close`: a WebAssembly memory never shrinks.
 */
export class WasmBackend implements Backend {
  readonly info: BackendInfo;
  readonly parallelism: number;
  readonly addressableBytes: number;
  /** The compute threads, for tests. */
  readonly threads: WasmThreads;
  readonly #memory: WasmMemory;
  #submitted: Promise<void> = Promise.resolve();
  #transferred: Promise<void> = Promise.resolve();
  #closing: Promise<void> | null = null;

  constructor(memory: WasmMemory, threads: WasmThreads, info: BackendInfo) {
    this.#memory = memory;
    this.threads = threads;
    this.info = Object.freeze(info);
    this.parallelism = info.threads;
    this.addressableBytes = memory.capacityBytes;
  }

  allocate(request: AllocationRequest): DeviceBuffer {
    this.#checkOpen('allocate');
    return this.#memory.allocate(request);
  }

  release(buffer: DeviceBuffer): void {
    this.#memory.release(buffer);
  }

  submit(ops: readonly PlacedOp[]): Promise<void> {
    this.#checkOpen('submit');
    const program = encodePlaced(ops);
    const running = this.#submitted.then(() => this.#run(program, ops));
    this.#submitted = settled(running);
    return running;
  }

  async #run(program: Float64Array, ops: readonly PlacedOp[]): Promise<void> {
    for (let first = 0; first < ops.length; first += opsPerDispatch) {
      const last = Math.min(ops.length, first + opsPerDispatch);
      const failure = await this.threads.run(program.subarray(first * wordsPerOp, last * wordsPerOp));
      if (failure !== 0) throw submissionError(failure, ops, first);
    }
  }

  write(target: Span, bytes: Uint8Array): void {
    this.#checkOpen('write');
    requireFilling(target, bytes);
    this.#memory.bytes('write', target).set(bytes);
  }

  async read(source: Span): Promise<Uint8Array> {
    this.#checkOpen('read');
    await this.#submitted;
    this.#checkOpen('read');
    // A copy outside the shared memory: most readers refuse bytes that another thread could change.
    return new Uint8Array(this.#memory.bytes('read', source));
  }

  transfer(transfers: readonly Transfer[]): Promise<TransferReport> {
    this.#checkOpen('transfer');
    const moving = transferIntoMemory(transfers, ({ target }) => this.#memory.bytes('transfer', target));
    const previous = this.#transferred;
    this.#transferred = settled(moving).then(() => previous);
    return moving;
  }

  /** Does nothing: Node.js has no call that asks the system to read ahead without reading. */
  prefetch(): void {
    this.#checkOpen('prefetch');
  }

  close(): Promise<void> {
    this.#closing ??= Promise.all([this.#submitted, this.#transferred]).then(async () => {
      await this.threads.close();
      this.#memory.releaseAll();
    });
    return this.#closing;
  }

  #checkOpen(action: string): void {
    if (this.#closing !== null) {
      throw new ExecutionError('backend-closed', `Cannot ${action}: the WebAssembly backend is closed`);
    }
  }
}

/** The failure word of a dispatch that began with op `first` of a submission, as the error that a person meets. */
function submissionError(
  failure: number,
  ops: readonly PlacedOp[],
  first: number,
): NumericsError | DefectError {
  const label = ops[first + (failure >> 2) - 1]?.label ?? '';
  if ((failure & 3) === failureCodes.kvOverflow) {
    return new NumericsError(
      'kv-overflow',
      `Cannot store keys and values at "${label}": a finite value is too large for F16, use --kv f32`,
      { label },
    );
  }
  return new DefectError(`Op "${label}" gathers a row outside its table`, { label });
}

/** Resolves when the promise is over, whichever way: the queue behind a failure goes on. */
function settled(promise: Promise<unknown>): Promise<void> {
  return promise.then(
    () => {},
    () => {},
  );
}
