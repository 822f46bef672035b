import type { DriverLibrary } from './driver.js';
import { allocatePinned, type PinnedMemory } from './pinned-memory.js';

/** Pinned buffers of one size that copies between host and device pass through; at most `count` exist. */
export class BouncePool {
  readonly byteLength: number;
  readonly #driver: DriverLibrary;
  readonly #enter: () => void;
  readonly #count: number;
  readonly #free: PinnedMemory[] = [];
  readonly #made: PinnedMemory[] = [];
  readonly #waiting: ((memory: PinnedMemory) => void)[] = [];

  constructor(driver: DriverLibrary, enter: () => void, byteLength: number, count: number) {
    this.#driver = driver;
    this.#enter = enter;
    this.byteLength = byteLength;
    this.#count = count;
  }

  get pinnedBytes(): number {
    return this.#made.length * this.byteLength;
  }

  /** A free buffer now, or null where all are in use. Throws `SetupError` `out-of-pinned-memory`. */
  tryTake(): PinnedMemory | null {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    if (this.#made.length === this.#count) return null;
    this.#enter();
    const memory = allocatePinned(this.#driver, 'copies', this.byteLength);
    this.#made.push(memory);
    return memory;
  }

  async take(): Promise<PinnedMemory> {
    return this.tryTake() ?? new Promise((resolve) => this.#waiting.push(resolve));
  }

  give(memory: PinnedMemory): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free.push(memory);
    else next(memory);
  }

  close(): void {
    for (const { hostAddress } of this.#made) this.#driver.cuMemFreeHost(hostAddress);
    this.#made.length = 0;
    this.#free.length = 0;
  }
}
