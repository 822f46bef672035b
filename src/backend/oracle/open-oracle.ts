import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import type { Backend, BackendInfo, Transfer, TransferReport } from '../backend.js';
import { requireFilling } from '../buffer-checks.js';
import { transferIntoMemory } from '../memory-file-transfer.js';
import type { PlacedOp } from '../ops.js';
import { closedError, OracleMemory } from './oracle-memory.js';
import { runOp } from './run-op.js';

/**
 * Opens the oracle: docs/numerics.md in plain TypeScript, one operation at a time, what every other backend is compared with.
 * Slow, single-threaded, for tests and audits.
 */
export function openOracle(): Backend {
  return new OracleBackend();
}

class OracleBackend implements Backend {
  readonly info: BackendInfo = Object.freeze({
    name: 'oracle',
    kernels: 'typescript',
    reason: 'the oracle was asked for',
    numerics: 'portable',
    threads: 1,
    kernelDigest: null,
  });
  readonly parallelism = 1;
  readonly addressableBytes = Number.POSITIVE_INFINITY;
  readonly #memory = new OracleMemory();
  #submitted: Promise<void> = Promise.resolve();
  #transferred: Promise<void> = Promise.resolve();
  #closing: Promise<void> | null = null;

  allocate(request: AllocationRequest): DeviceBuffer {
    this.#checkOpen('allocate');
    return this.#memory.allocate(request);
  }

  release(buffer: DeviceBuffer): void {
    this.#memory.release(buffer);
  }

  submit(ops: readonly PlacedOp[]): Promise<void> {
    this.#checkOpen('submit');
    const running = this.#submitted.then(() => {
      for (const placed of ops) runOp(this.#memory, placed);
    });
    this.#submitted = settled(running);
    return running;
  }

  write(target: Span, bytes: Uint8Array): void {
    this.#checkOpen('write');
    requireFilling(target, bytes);
    this.#memory.bytes(target).set(bytes);
  }

  async read(source: Span): Promise<Uint8Array> {
    this.#checkOpen('read');
    await this.#submitted;
    this.#checkOpen('read');
    return this.#memory.bytes(source).slice();
  }

  transfer(transfers: readonly Transfer[]): Promise<TransferReport> {
    this.#checkOpen('transfer');
    const moving = transferIntoMemory(transfers, ({ target }) => this.#memory.bytes(target));
    const previous = this.#transferred;
    this.#transferred = settled(moving).then(() => previous);
    return moving;
  }

  prefetch(): void {
    this.#checkOpen('prefetch');
  }

  close(): Promise<void> {
    this.#closing ??= Promise.all([this.#submitted, this.#transferred]).then(() => {
      this.#memory.releaseAll();
    });
    return this.#closing;
  }

  #checkOpen(action: string): void {
    if (this.#closing !== null) throw closedError(action);
  }
}

/** Resolves when the promise is over, whichever way: a failed submission holds up no later one. */
function settled(promise: Promise<unknown>): Promise<void> {
  return promise.then(
    () => {},
    () => {},
  );
}
