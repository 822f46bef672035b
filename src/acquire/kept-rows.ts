import type { RowStore } from './row-store.js';

/** Rows of one matrix that stay in the arena for the session: first come, until its share is full. */
export class KeptRows implements RowStore {
  readonly #slotOf: Int32Array; // by neuron, -1 where not kept
  readonly #firstSlot: number;
  readonly #capacity: number;
  #count = 0;

  constructor(neurons: number, firstSlot: number, capacity: number) {
    this.#slotOf = new Int32Array(neurons).fill(-1);
    this.#firstSlot = firstSlot;
    this.#capacity = capacity;
  }

  get count(): number {
    return this.#count;
  }

  slotOf(neuron: number): number {
    return this.#slotOf[neuron]!;
  }

  begin(): void {}

  offer(newcomer: number): number {
    const index = this.#count + newcomer;
    return index < this.#capacity ? this.#firstSlot + index : -1;
  }

  enter(neurons: readonly number[]): void {
    for (const neuron of neurons) {
      this.#slotOf[neuron] = this.#firstSlot + this.#count;
      this.#count += 1;
    }
  }

  reset(): void {}
}
