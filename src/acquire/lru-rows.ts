import { DefectError } from '../base/errors.js';
import type { RowStore } from './row-store.js';

/**
 * Bytes of an `LruRows`: a place for each neuron; neuron, neighbours and last use for each place. As many as the `RowIndex` has that a
 * device keeps in its stead.
 */
export function lruIndexBytes(neurons: number, capacity: number): number {
  return 4 * neurons + 16 * capacity;
}

/**
 * The rows used last: a doubly linked list over places, in arrays, so that every row costs the same however many there
 * are. Within a set, held rows are used before missing ones, each ascending; so the same sets give the same evictions.
 * A row of the current set is never evicted: ops may still read it.
 */
export class LruRows implements RowStore {
  readonly #placeOf: Int32Array; // by neuron, -1 where not held
  readonly #neuronOf: Int32Array; // by place, -1 where free
  readonly #newer: Int32Array; // by place, -1 for the newest
  readonly #older: Int32Array; // by place, -1 for the oldest
  /** Set in which a place was last used; 0 before the first. Wraps after 2^32 sets, harmlessly but for one eviction. */
  readonly #usedIn: Uint32Array;
  readonly #firstSlot: number;
  #newest = -1;
  #oldest = -1;
  #set = 0;
  #count = 0;
  /** Places offered and not entered yet, in order. */
  #pending: number[] = [];

  constructor(neurons: number, firstSlot: number, capacity: number) {
    this.#placeOf = new Int32Array(neurons).fill(-1);
    this.#neuronOf = new Int32Array(capacity).fill(-1);
    this.#newer = new Int32Array(capacity).fill(-1);
    this.#older = new Int32Array(capacity).fill(-1);
    this.#usedIn = new Uint32Array(capacity);
    this.#firstSlot = firstSlot;
    for (let place = 0; place < capacity; place += 1) this.#putNewest(place);
  }

  get count(): number {
    return this.#count;
  }

  slotOf(neuron: number): number {
    const place = this.#placeOf[neuron]!;
    if (place < 0) return -1;
    this.#use(place);
    return this.#firstSlot + place;
  }

  begin(): void {
    this.reset();
    this.#set = (this.#set + 1) >>> 0 || 1;
  }

  offer(): number {
    const place = this.#oldest;
    if (place < 0 || this.#usedIn[place] === this.#set) return -1;
    this.#empty(place);
    this.#use(place);
    this.#pending.push(place);
    return this.#firstSlot + place;
  }

  enter(neurons: readonly number[]): void {
    const places = this.#pending.splice(0, neurons.length);
    if (places.length < neurons.length) {
      throw new DefectError(`Cannot keep ${neurons.length} rows: ${places.length} places were offered`);
    }
    for (const [index, neuron] of neurons.entries()) {
      const place = places[index]!;
      this.#neuronOf[place] = neuron;
      this.#placeOf[neuron] = place;
      this.#count += 1;
    }
  }

  reset(): void {
    for (const place of this.#pending.splice(0)) {
      this.#unlink(place);
      this.#usedIn[place] = 0;
      this.#newer[place] = this.#oldest;
      this.#older[place] = -1;
      if (this.#oldest >= 0) this.#older[this.#oldest] = place;
      else this.#newest = place;
      this.#oldest = place;
    }
  }

  #empty(place: number): void {
    const neuron = this.#neuronOf[place]!;
    if (neuron < 0) return;
    this.#placeOf[neuron] = -1;
    this.#neuronOf[place] = -1;
    this.#count -= 1;
  }

  #use(place: number): void {
    this.#usedIn[place] = this.#set;
    if (place === this.#newest) return;
    this.#unlink(place);
    this.#putNewest(place);
  }

  #unlink(place: number): void {
    const newer = this.#newer[place]!;
    const older = this.#older[place]!;
    if (newer >= 0) this.#older[newer] = older;
    else this.#newest = older;
    if (older >= 0) this.#newer[older] = newer;
    else this.#oldest = newer;
  }

  #putNewest(place: number): void {
    this.#newer[place] = -1;
    this.#older[place] = this.#newest;
    if (this.#newest >= 0) this.#newer[this.#newest] = place;
    else this.#oldest = place;
    this.#newest = place;
  }
}
