import type { RowStore } from './row-store.js';

/** Bytes of a `HotRows`: a place for each neuron. */
export function hotIndexBytes(neurons: number): number {
  return 4 * neurons;
}

/** A fixed set of rows, loaded ahead. */
export class HotRows implements RowStore {
  readonly #slotOf: Int32Array; // by neuron, -1 where not held
  readonly count: number;

  /** `neurons` ascending, in the order of their arena rows from `firstSlot` on. */
  constructor(width: number, firstSlot: number, neurons: readonly number[]) {
    this.#slotOf = new Int32Array(width).fill(-1);
    for (const [index, neuron] of neurons.entries()) this.#slotOf[neuron] = firstSlot + index;
    this.count = neurons.length;
  }

  slotOf(neuron: number): number {
    return this.#slotOf[neuron]!;
  }

  begin(): void {}

  offer(): number {
    return -1;
  }

  enter(): void {}

  reset(): void {}
}
