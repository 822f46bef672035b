/** Alignment of every block; the smallest block is one such unit. */
export const heapAlignment = 64;

/**
 * First-fit allocator of address ranges in `[begin, end)`. Free ranges are kept ascending and never touch one
 * another, so that what is released can be given out again whole. Holds no memory itself.
 */
export class WasmHeap {
  readonly begin: number;
  readonly end: number;
  /** Ascending `[begin, end)` of free ranges. */
  #free: { begin: number; end: number }[];
  readonly #sizes = new Map<number, number>();
  #held = 0;

  constructor(begin: number, end: number) {
    this.begin = Math.ceil(begin / heapAlignment) * heapAlignment;
    this.end = Math.floor(end / heapAlignment) * heapAlignment;
    this.#free = this.begin < this.end ? [{ begin: this.begin, end: this.end }] : [];
  }

  /** Bytes of blocks given out, alignment included. */
  get heldBytes(): number {
    return this.#held;
  }

  /** Bytes of the largest block that `allocate` would give. */
  get largestFreeBytes(): number {
    return this.#free.reduce((largest, { begin, end }) => Math.max(largest, end - begin), 0);
  }

  /** Address of a block of at least `byteLength` bytes, or null where no free range is long enough. */
  allocate(byteLength: number): number | null {
    const size = Math.max(1, Math.ceil(byteLength / heapAlignment)) * heapAlignment;
    const index = this.#free.findIndex(({ begin, end }) => end - begin >= size);
    const range = this.#free[index];
    if (range === undefined) return null;
    const address = range.begin;
    range.begin += size;
    if (range.begin === range.end) this.#free.splice(index, 1);
    this.#sizes.set(address, size);
    this.#held += size;
    return address;
  }

  /** Gives a block back. Throws `RangeError` for an address that `allocate` did not give, or that was given back. */
  release(address: number): void {
    const size = this.#sizes.get(address);
    if (size === undefined) throw new RangeError(`Cannot release address ${address}: no block begins there`);
    this.#sizes.delete(address);
    this.#held -= size;
    const end = address + size;
    const found = this.#free.findIndex((range) => range.begin > address);
    const index = found === -1 ? this.#free.length : found;
    const before = this.#free[index - 1];
    const after = this.#free[index];
    if (before?.end === address && after?.begin === end) {
      before.end = after.end;
      this.#free.splice(index, 1);
    } else if (before?.end === address) {
      before.end = end;
    } else if (after?.begin === end) {
      after.begin = address;
    } else {
      this.#free.splice(index, 0, { begin: address, end });
    }
  }
}
