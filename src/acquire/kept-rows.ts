/**
 * Rows of one matrix that stay in the arena for the session: first come, until its share is full. A row is entered
 * only when it has landed.
 */
export class KeptRows {
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

  /** Arena row of a kept neuron, or -1. */
  slotOf(neuron: number): number {
    return this.#slotOf[neuron]!;
  }

  /** Arena row that the `offset`-th newcomer would get, or -1 when the share is full. */
  offer(offset: number): number {
    const index = this.#count + offset;
    return index < this.#capacity ? this.#firstSlot + index : -1;
  }

  /** Enters the newcomers of one pass, in the order in which slots were offered. */
  enter(neurons: readonly number[]): void {
    for (const neuron of neurons) {
      this.#slotOf[neuron] = this.#firstSlot + this.#count;
      this.#count += 1;
    }
  }
}
