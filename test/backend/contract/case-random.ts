import { philoxWords } from '../../../src/base/philox.js';
import type { StoredType } from '../../../src/base/stored-type.js';

/** What the numbers of a case look like. */
export type Flavor = 'plain' | 'sparse' | 'zero' | 'tiny' | 'wide' | 'edges' | 'non-finite';
export const finiteFlavors = ['plain', 'sparse', 'tiny', 'wide', 'edges'] as const;

// Longer arrays repeat what was drawn: a prime, so that no stride of a case lines up with the period. Drawing every
// element of the large matrices took most of the suite's time.
const drawnAtMost = 8209;

const largest = 3.4028234663852886e38;
const edgeValues = [
  0,
  -0,
  2 ** -149,
  -(2 ** -149),
  2 ** -126,
  -(2 ** -126),
  2 ** -126 - 2 ** -149,
  1,
  -1,
  largest,
  -largest,
];

/**
 * Random inputs of one case: a function of the seed and the case's number alone. Philox gives the start of a small
 * fast generator (sfc32, Chris Doty-Humphrey, PractRand), since cases take millions of numbers.
 */
export class CaseRandom {
  #a: number;
  #b: number;
  #c: number;
  #counter: number;

  constructor(seed: number, caseNumber: number) {
    [this.#a, this.#b, this.#c, this.#counter] = philoxWords(seed, caseNumber, 0);
    for (let discarded = 0; discarded < 12; discarded++) this.word();
  }

  /** 32 random bits as an unsigned integer. */
  word(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }

  /** In [0, 1). */
  uniform(): number {
    return this.word() * 2 ** -32;
  }

  /** From 0 to count - 1. */
  below(count: number): number {
    return Math.floor(this.uniform() * count);
  }

  chance(probability: number): boolean {
    return this.uniform() < probability;
  }

  pick<T>(values: readonly T[]): T {
    return values[this.below(values.length)]!;
  }

  bytes(byteLength: number): Uint8Array {
    const words = new Uint32Array(Math.ceil(byteLength / 4)).map(() => this.word());
    return new Uint8Array(words.buffer, 0, byteLength);
  }

  value(flavor: Flavor): number {
    switch (flavor) {
      case 'plain':
        return this.#signed(2 * this.uniform());
      case 'sparse':
        if (this.chance(0.9)) return this.chance(0.5) ? 0 : -0;
        return this.#signed(this.uniform());
      case 'zero':
        return this.chance(0.5) ? 0 : -0;
      case 'tiny':
        return this.#signed((1 + this.uniform()) * 2 ** -(60 + this.below(90)));
      case 'wide':
        return this.#signed((1 + this.uniform()) * 2 ** (this.below(60) - 30));
      case 'edges':
        return this.chance(0.1) ? this.pick(edgeValues) : this.value(this.chance(0.5) ? 'tiny' : 'plain');
      case 'non-finite':
        if (this.chance(0.02))
          return this.pick([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]);
        return this.value(this.chance(0.3) ? 'zero' : 'plain');
    }
  }

  floats(count: number, flavor: Flavor): Float32Array {
    const drawn = new Float32Array(Math.min(count, drawnAtMost)).map(() => this.value(flavor));
    return count <= drawnAtMost
      ? drawn
      : new Float32Array(count).map((_, index) => drawn[index % drawnAtMost]!);
  }

  /** Any bits at all: every exponent is as likely, NaN and infinities included. */
  anyFloats(count: number): Float32Array {
    return new Float32Array(new Uint32Array(count).map(() => this.word()).buffer);
  }

  /** Stored weights; `edges` draws from every finite encoding, `non-finite` from the others too. */
  weights(type: StoredType, count: number, flavor: Flavor): Uint8Array {
    if (type === 'f32') return new Uint8Array(this.floats(count, flavor).buffer);
    const drawn = new Uint16Array(Math.min(count, drawnAtMost)).map(() => this.#half(type, flavor));
    const halves = new Uint16Array(count).map((_, index) => drawn[index % drawnAtMost]!);
    return new Uint8Array(halves.buffer);
  }

  #half(type: 'f16' | 'bf16', flavor: Flavor): number {
    const exponentMask = type === 'f16' ? 0x7c00 : 0x7f80;
    if (flavor === 'zero') return this.word() & 0x8000;
    if (flavor === 'sparse' && this.chance(0.5)) return this.word() & 0x8000;
    if (flavor === 'non-finite' && this.chance(0.02)) return (this.word() & 0xffff) | exponentMask;
    if (flavor === 'edges' || flavor === 'tiny') {
      const half = this.word() & 0xffff;
      // The lowest exponent bit is cleared where all are set, which would be an infinity or NaN.
      return (half & exponentMask) === exponentMask ? half & ~(exponentMask & -exponentMask) : half;
    }
    // Sign and fraction at random, exponents of 2^-7 to 2^0.
    const fractionBits = type === 'f16' ? 10 : 7;
    const bias = type === 'f16' ? 15 : 127;
    const exponent = bias - this.below(8);
    return (this.word() & 0x8000) | (exponent << fractionBits) | (this.word() & ((1 << fractionBits) - 1));
  }

  #signed(magnitude: number): number {
    return this.chance(0.5) ? magnitude : -magnitude;
  }
}
