import { DefectError } from '../../base/errors.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import type { Backend, BackendInfo, Transfer, TransferFile, TransferReport } from '../backend.js';
import type { CompactOp, OpKind, PlacedOp } from '../ops.js';

/** Which compaction an active set is asked for. */
export interface ActiveSetPlace {
  /** Label of the op, for example `layers.3.second.active`. */
  readonly label: string;
  /** From the label; null outside layers. */
  readonly layer: number | null;
  /** How often this label came before: 0 in the first pass. */
  readonly pass: number;
  readonly rows: number; // T
  readonly width: number; // neurons
}

export interface NullOptions {
  /** Neurons that a compaction is to find, ascending, each below `width`. */
  readonly activeRows: (place: ActiveSetPlace) => ArrayLike<number>;
  readonly addressableBytes?: number;
}

/** What a null backend was asked for. */
export interface NullCounters {
  readonly ops: ReadonlyMap<OpKind, number>;
  readonly transfers: number;
  readonly transferRegions: number;
  readonly transferBytes: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly heldBytes: number;
}

const info: BackendInfo = {
  name: 'null',
  kernels: 'none',
  reason: 'counts and computes nothing',
  numerics: 'portable',
  threads: 0,
  kernelDigest: null,
};

/** Distance between buffers that exist in name only. */
const alignment = 64;

/** Opens a backend that holds no bytes: it counts, and answers for active sets what it was given. */
export function openNull(options: NullOptions): NullBackend {
  return new NullBackend(options);
}

export class NullBackend implements Backend {
  readonly info = info;
  readonly parallelism = 1;
  readonly addressableBytes: number;
  readonly #activeRows: NullOptions['activeRows'];
  readonly #ops = new Map<OpKind, number>();
  readonly #seen = new Map<string, number>();
  /** Words of active sets by the address of their count. */
  readonly #activeSets = new Map<number, Uint32Array>();
  readonly #held = new Set<DeviceBuffer>();
  #nextAddress = alignment;
  #transfers = 0;
  #transferRegions = 0;
  #transferBytes = 0;
  #readBytes = 0;
  #writtenBytes = 0;
  #closed = false;

  constructor({ activeRows, addressableBytes = Infinity }: NullOptions) {
    this.#activeRows = activeRows;
    this.addressableBytes = addressableBytes;
  }

  get counters(): NullCounters {
    let heldBytes = 0;
    for (const { byteLength } of this.#held) heldBytes += byteLength;
    return {
      ops: new Map(this.#ops),
      transfers: this.#transfers,
      transferRegions: this.#transferRegions,
      transferBytes: this.#transferBytes,
      readBytes: this.#readBytes,
      writtenBytes: this.#writtenBytes,
      heldBytes,
    };
  }

  allocate({ label, cause, byteLength }: AllocationRequest): DeviceBuffer {
    this.#requireOpen();
    const buffer = { label, cause, byteLength, address: this.#nextAddress };
    this.#nextAddress += Math.ceil(byteLength / alignment) * alignment;
    this.#held.add(buffer);
    return buffer;
  }

  release(buffer: DeviceBuffer): void {
    if (!this.#held.delete(buffer)) throw new DefectError(`Cannot release "${buffer.label}": it is not held`);
  }

  async submit(ops: readonly PlacedOp[]): Promise<void> {
    this.#requireOpen();
    for (const { label, op } of ops) {
      this.#ops.set(op.kind, (this.#ops.get(op.kind) ?? 0) + 1);
      if (op.kind === 'compact') this.#compact(label, op);
    }
  }

  write(target: Span, bytes: Uint8Array): void {
    if (bytes.byteLength !== target.byteLength) {
      throw new RangeError(`Cannot write ${bytes.byteLength} bytes to a span of ${target.byteLength}`);
    }
    this.#requireHeld(target);
    this.#writtenBytes += bytes.byteLength;
  }

  /** Words of an active set where the span lies in one, else zeros. */
  async read(source: Span): Promise<Uint8Array> {
    this.#requireHeld(source);
    this.#readBytes += source.byteLength;
    const begin = addressOf(source);
    for (const [address, set] of this.#activeSets) {
      const bytes = new Uint8Array(set.buffer);
      const offset = begin - address;
      if (offset >= 0 && offset + source.byteLength <= bytes.byteLength) {
        return bytes.slice(offset, offset + source.byteLength);
      }
    }
    return new Uint8Array(source.byteLength);
  }

  async transfer(transfers: readonly Transfer[]): Promise<TransferReport> {
    this.#requireOpen();
    let requestedBytes = 0;
    for (const { target } of transfers) {
      this.#requireHeld(target);
      requestedBytes += target.byteLength;
    }
    this.#transfers += 1;
    this.#transferRegions += transfers.length;
    this.#transferBytes += requestedBytes;
    return { requestedBytes, elapsedNs: 0n };
  }

  prefetch(_file: TransferFile, _regions: readonly { position: number; byteLength: number }[]): void {}

  async close(): Promise<void> {
    this.#closed = true;
    this.#held.clear();
  }

  #compact(label: string, op: CompactOp): void {
    const pass = this.#seen.get(label) ?? 0;
    this.#seen.set(label, pass + 1);
    const layer = /^layers\.(\d+)\./.exec(label)?.[1];
    const { rows, width } = op;
    const place = { label, layer: layer === undefined ? null : Number(layer), pass, rows, width };
    const active = Uint32Array.from(this.#activeRows(place));
    active.forEach((neuron, index) => {
      if (neuron >= width || (index > 0 && neuron <= active[index - 1]!)) {
        throw new RangeError(
          `Cannot use the active set for "${label}": ${neuron} at ${index} is out of order or range`,
        );
      }
    });
    const set = new Uint32Array(1 + width);
    set[0] = active.length;
    set.set(active, 1);
    this.#activeSets.set(addressOf(op.active), set);
  }

  #requireOpen(): void {
    if (this.#closed) throw new DefectError('Cannot use the null backend: it is closed');
  }

  #requireHeld({ buffer }: Span): void {
    if (!this.#held.has(buffer)) throw new DefectError(`Cannot use "${buffer.label}": it is not held`);
  }
}

function addressOf(span: Span): number {
  return span.buffer.address + span.byteOffset;
}
