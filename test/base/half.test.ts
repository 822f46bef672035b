import { describe, expect, it } from 'vitest';
import { narrowBf16, narrowF16, widenBf16, widenF16, widenHalves, widenStored } from '../../src/base/half.js';
import { philoxWords } from '../../src/base/philox.js';

const seed = 7;
const bitsOf = (value: number): number => new Uint32Array(Float32Array.of(value).buffer)[0]!;
const floatOf = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0]!;
const f16IsNaN = (half: number): boolean => (half & 0x7fff) > 0x7c00;
const bf16IsNaN = (half: number): boolean => (half & 0x7fff) > 0x7f80;

/** The nearest of all finite values by distance, ties to the even encoding; what IEEE-754 says, found by search. */
function nearestF16(value: number): number {
  const magnitude = Math.abs(value);
  let low = 0;
  let high = 0x7c00; // stands for 65536 here
  const at = (half: number): number => (half === 0x7c00 ? 65536 : widenF16(half));
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (at(middle) <= magnitude) low = middle;
    else high = middle;
  }
  const below = magnitude - at(low);
  const above = at(high) - magnitude;
  const nearest = below < above || (below === above && low % 2 === 0) ? low : high;
  return nearest | (Object.is(value, -0) || value < 0 ? 0x8000 : 0);
}

describe('F16', () => {
  it('has the values of the standard', () => {
    const known: [number, number][] = [
      [0x0000, 0],
      [0x8000, -0],
      [0x0001, 2 ** -24],
      [0x03ff, 1023 * 2 ** -24],
      [0x0400, 2 ** -14],
      [0x3555, 0.333251953125],
      [0x3c00, 1],
      [0xc000, -2],
      [0x7bff, 65504],
      [0x7c00, Number.POSITIVE_INFINITY],
      [0xfc00, Number.NEGATIVE_INFINITY],
      [0x7e00, Number.NaN],
      [0x7c01, Number.NaN],
    ];
    for (const [half, value] of known) expect(widenF16(half)).toBe(value);
  });

  it('comes back from F32 unchanged, every encoding', () => {
    for (let half = 0; half < 65536; half++) {
      const back = narrowF16(widenF16(half));
      if (f16IsNaN(half) ? !f16IsNaN(back) : back !== half)
        expect.fail(`encoding ${half} came back as ${back}`);
    }
  });

  it('rounds what lies beside and halfway between neighbours to nearest, ties to even', () => {
    for (let half = 0; half < 0x7c00; half++) {
      const next = half === 0x7bff ? 65536 : widenF16(half + 1);
      const middle = (widenF16(half) + next) / 2; // exact in F32
      for (const bits of [bitsOf(middle) - 1, bitsOf(middle), bitsOf(middle) + 1]) {
        const value = floatOf(bits);
        if (narrowF16(value) !== nearestF16(value) || narrowF16(-value) !== nearestF16(-value)) {
          expect.fail(`${value}: got ${narrowF16(value)}, want ${nearestF16(value)}`);
        }
      }
    }
  });

  it(`rounds random F32 values like a search over all encodings (seed ${seed})`, () => {
    for (let index = 0; index < 20_000; index++) {
      const value = floatOf(philoxWords(seed, index, 0)[0]);
      const half = narrowF16(value);
      const right = Number.isNaN(value)
        ? f16IsNaN(half)
        : Math.abs(value) >= 65520
          ? (half & 0x7fff) === 0x7c00
          : half === nearestF16(value);
      if (!right) expect.fail(`${value} gave ${half}`);
    }
  });
});

describe('BF16', () => {
  it('is the upper half of F32, every encoding', () => {
    for (let half = 0; half < 65536; half++) {
      if (bf16IsNaN(half)) {
        if (!Number.isNaN(widenBf16(half)) || !bf16IsNaN(narrowBf16(widenBf16(half)))) expect.fail(`${half}`);
      } else if (bitsOf(widenBf16(half)) !== half * 65536 || narrowBf16(widenBf16(half)) !== half) {
        expect.fail(`encoding ${half}`);
      }
    }
  });

  it('rounds to nearest, ties to even, up to infinity', () => {
    for (let half = 0; half < 0x7f80; half++) {
      const even = half % 2 === 0 ? half : half + 1;
      const middle = half * 65536 + 32768;
      for (const [bits, want] of [
        [middle - 1, half],
        [middle, even],
        [middle + 1, half + 1],
      ] as const) {
        if (narrowBf16(floatOf(bits)) !== want || narrowBf16(-floatOf(bits)) !== (want | 0x8000)) {
          expect.fail(`bits ${bits}: got ${narrowBf16(floatOf(bits))}, want ${want}`);
        }
      }
    }
  });
});

describe('arrays', () => {
  it('convert as their elements do', () => {
    const halves = Uint16Array.from({ length: 65536 }, (_, half) => half);
    for (const type of ['f16', 'bf16'] as const) {
      const widen = type === 'f16' ? widenF16 : widenBf16;
      const wide = new Float32Array(65536);
      widenHalves(type, halves, wide);
      const stored = widenStored(type, new Uint8Array(halves.buffer));
      for (let half = 0; half < 65536; half++) {
        if (!Object.is(wide[half], widen(half)) || !Object.is(stored[half], widen(half)))
          expect.fail(`${half}`);
      }
    }
  });

  it('leave F32 where it lies', () => {
    const bytes = new Uint8Array(16);
    const view = widenStored('f32', bytes.subarray(4, 12));
    view[1] = 1;
    expect([...bytes.subarray(8, 12)]).toEqual([0, 0, 0x80, 0x3f]);
    expect(view.length).toBe(2);
  });
});
