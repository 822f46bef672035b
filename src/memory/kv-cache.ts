import { DefectError, ExecutionError } from '../base/errors.js';
import { type Allocator, type DeviceBuffer, spanOf } from './buffers.js';
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

/** Bytes of a KV cache: keys and values of every layer, slot and position. */
export function kvBytes(shape: KvShape): number {
  return 2 * shape.layers * halfLayerBytes(shape);
}

/** Keys and values of all layers, allocated once, and who uses which slot up to which position. */
export class KvCache {
  readonly shape: KvShape;
  readonly #allocator: Allocator;
  readonly #buffers: DeviceBuffer[] = [];
  readonly #layers: KvLayer[] = [];
  /** Positions in use by slot; null where the slot is free. */
  readonly #lengths: (number | null)[];

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
    this.#lengths = Array.from({ length: shape.slots }, () => null);
    try {
      for (let layer = 0; layer < shape.layers; layer += 1) this.#layers.push(this.#allocateLayer());
    } catch (error) {
      this.close();
      throw error;
    }
  }

  layer(index: number): KvLayer {
    const layer = this.#layers[index];
    if (layer === undefined) {
      throw new DefectError(`Cannot use KV layer ${index}: the cache has ${this.shape.layers}`);
    }
    return layer;
  }

  get freeSlots(): number {
    return this.#lengths.filter((length) => length === null).length;
  }

  /** Takes the lowest free slot, at length 0. Throws `ExecutionError` `kv-slots-exhausted`. */
  claim(): number {
    const slot = this.#lengths.indexOf(null);
    if (slot < 0) {
      throw new ExecutionError(
        'kv-slots-exhausted',
        `Cannot start a sequence: all ${this.shape.slots} KV slots are in use`,
        { slots: this.shape.slots },
      );
    }
    this.#lengths[slot] = 0;
    return slot;
  }

  release(slot: number): void {
    this.length(slot);
    this.#lengths[slot] = null;
  }

  /** Positions in use by a claimed slot. */
  length(slot: number): number {
    const length = this.#lengths[slot];
    if (length === null || length === undefined)
      throw new DefectError(`Cannot use KV slot ${slot}: it is free`);
    return length;
  }

  /** Adds positions at the end. Throws `ExecutionError` `kv-full` when the slot would pass its capacity. */
  extend(slot: number, positions: number): void {
    const length = this.length(slot) + positions;
    if (length > this.shape.capacity) {
      throw new ExecutionError(
        'kv-full',
        `Cannot extend a sequence to ${length} positions: the KV cache holds ${this.shape.capacity}`,
        { positions: length, capacity: this.shape.capacity },
      );
    }
    this.#lengths[slot] = length;
  }

  /** Forgets the positions from `length` on (a rejected draft, a cancelled pass); later writes replace them. */
  truncate(slot: number, length: number): void {
    const current = this.length(slot);
    if (length < 0 || length > current) {
      throw new DefectError(`Cannot truncate KV slot ${slot} to ${length} positions: it has ${current}`);
    }
    this.#lengths[slot] = length;
  }

  /** Frees every slot. Bytes need no clearing: attention reads no position that its sequence has not written. */
  reset(): void {
    this.#lengths.fill(null);
  }

  close(): void {
    for (const buffer of this.#buffers.splice(0)) this.#allocator.release(buffer);
    this.#layers.length = 0;
  }

  #allocateLayer(): KvLayer {
    const { type, slots, kvHeads, headDim, capacity } = this.shape;
    const byteLength = halfLayerBytes(this.shape);
    const keys = this.#allocator.allocate({ label: 'kv cache', cause: 'kv', byteLength });
    this.#buffers.push(keys);
    const values = this.#allocator.allocate({ label: 'kv cache', cause: 'kv', byteLength });
    this.#buffers.push(values);
    return Object.freeze({
      type,
      keys: spanOf(keys),
      values: spanOf(values),
      slots,
      kvHeads,
      headDim,
      capacity,
    });
  }
}

function halfLayerBytes(shape: KvShape): number {
  return shape.slots * shape.kvHeads * shape.headDim * shape.capacity * (shape.type === 'f16' ? 2 : 4);
}
