/** Seeded numbers for tests: mulberry32 and sums of uniforms, good enough for weights. */
export class SeededNumbers {
  #state: number;

  constructor(readonly seed: number) {
    this.#state = seed | 0;
  }

  uniform(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  }

  /** Mean 0, variance 1. */
  normal(): number {
    let sum = -6;
    for (let term = 0; term < 12; term++) sum += this.uniform();
    return sum;
  }

  index(length: number): number {
    return Math.floor(this.uniform() * length);
  }

  floats(length: number, scale: number, mean = 0): Float32Array {
    return Float32Array.from({ length }, () => mean + scale * this.normal());
  }
}
