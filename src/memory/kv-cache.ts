import { DefectError, UsageError } from '../base/errors.js';
import { type Allocator, type DeviceBuffer, type Span, spanOf, subspan } from './buffers.js';
import type { KvLayer } from './kv-layer.js';

/** Sizes of a KV cache. A slot is one sequence; the capacity is positions a slot. */
export interface KvShape {
  readonly layers: number;
  readonly slots: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly capacity: number;
  readonly type: 'f16' | 'f32';
}

/** Alignment of device allocations; those of the processor need less. */
const partAlignment = 256;

/** Bytes of a KV cache: keys and values of every layer, slot and position. */
export function kvBytes(shape: KvShape): number {
  return 2 * shape.layers * halfLayerBytes(shape);
}

/** Keys and values of all layers, allocated once, and which slots are in use. */
export class KvCache {
  readonly shape: KvShape;
  readonly layers: readonly KvLayer[];
  readonly #allocator: Allocator;
  readonly #buffers: DeviceBuffer[] = [];
  readonly #claimed: boolean[];

  /** Throws `BudgetError` or `SetupError` as the allocator does, holding nothing then. */
  constructor(allocator: Allocator, shape: KvShape) {
    for (const name of ['layers', 'slots', 'kvHeads', 'headDim', 'capacity'] as const) {
      if (!Number.isSafeInteger(shape[name]) || shape[name] < 1) {
        throw new RangeError(
          `Cannot make a KV cache: ${name} is ${shape[name]}, a positive integer is needed`,
        );
      }
    }
    this.shape = Object.freeze({ ...shape });
    this.#allocator = allocator;
    this.#claimed = Array.from({ length: shape.slots }, () => false);
    try {
      this.layers = this.#allocateLayers();
    } catch (error) {
      this.close();
      throw error;
    }
  }

  get slots(): number {
    return this.shape.slots;
  }

  /** Positions of a slot. */
  get capacity(): number {
    return this.shape.capacity;
  }

  layer(index: number): KvLayer {
    const layer = this.layers[index];
    if (layer === undefined) {
      throw new DefectError(`Cannot use KV layer ${index}: the cache has ${this.layers.length}`);
    }
    return layer;
  }

  get freeSlots(): number {
    return this.#claimed.filter((claimed) => !claimed).length;
  }

  /** Takes the lowest free slots, all or none. Throws `UsageError` `kv-slots-exhausted`. */
  claim(count: number): number[] {
    if (count > this.freeSlots) {
      throw new UsageError(
        'kv-slots-exhausted',
        `Cannot start ${count} sequences: ${this.freeSlots} of ${this.slots} KV slots are free`,
        { wanted: count, free: this.freeSlots, slots: this.slots },
      );
    }
    const slots = [...this.#claimed.keys()].filter((slot) => !this.#claimed[slot]).slice(0, count);
    for (const slot of slots) this.#claimed[slot] = true;
    return slots;
  }

  /** Frees a slot. Its bytes need no clearing: attention reads no position that its sequence has not written. */
  release(slot: number): void {
    if (this.#claimed[slot] !== true) throw new DefectError(`Cannot release KV slot ${slot}: it is free`);
    this.#claimed[slot] = false;
  }

  /** Frees every slot. */
  reset(): void {
    this.#claimed.fill(false);
  }

  close(): void {
    for (const buffer of this.#buffers.splice(0)) this.#allocator.release(buffer);
  }

  /** One buffer where all parts of it are aligned as buffers are: devices lose up to a page for each. */
  #allocateLayers(): readonly KvLayer[] {
    const { type, layers, slots, kvHeads, headDim, capacity } = this.shape;
    const half = halfLayerBytes(this.shape);
    const whole = half % partAlignment === 0 ? this.#allocate(2 * layers * half) : null;
    const part = (index: number): Span =>
      whole === null ? this.#allocate(half) : subspan(whole, index * half, half);
    return Array.from({ length: layers }, (_, layer) =>
      Object.freeze({
        type,
        keys: part(2 * layer),
        values: part(2 * layer + 1),
        slots,
        kvHeads,
        headDim,
        capacity,
      }),
    );
  }

  #allocate(byteLength: number): Span {
    const buffer = this.#allocator.allocate({ label: 'kv cache', cause: 'kv', byteLength });
    this.#buffers.push(buffer);
    return spanOf(buffer);
  }
}

function halfLayerBytes(shape: KvShape): number {
  return shape.slots * shape.kvHeads * shape.headDim * shape.capacity * (shape.type === 'f16' ? 2 : 4);
}
