import { describe, expect, it } from 'vitest';
import { cos64, exp64, log64, pow64, sin64 } from '../../src/base/binary64.js';
import { uniform } from '../../src/base/philox.js';

const seed = 31;
const words = new BigInt64Array(1);
const float = new Float64Array(words.buffer);

/** Steps between two doubles of the same sign. */
function steps(a: number, b: number): number {
  if (Object.is(a, b)) return 0;
  float[0] = a;
  const first = words[0]!;
  float[0] = b;
  const distance = Number(first - words[0]!);
  return Number.isNaN(a) || Number.isNaN(b) ? Number.POSITIVE_INFINITY : Math.abs(distance);
}

/** Math.* of V8 is itself within about 1 ulp, so two steps apart still bounds the error of ours by 2. */
function agrees(
  got: (x: number) => number,
  reference: (x: number) => number,
  at: (u: number) => number,
): void {
  let worst = 0;
  let where = 0;
  for (let index = 0; index < 20_000; index++) {
    const x = at(uniform(seed, index, 0));
    const apart = steps(got(x), reference(x));
    if (apart > worst) [worst, where] = [apart, x];
  }
  expect(worst, `at ${where} (seed ${seed})`).toBeLessThanOrEqual(1);
}

describe('binary64 functions', () => {
  it('exp agrees with Math.exp', () => {
    agrees(exp64, Math.exp, (u) => 1400 * u - 700);
    agrees(exp64, Math.exp, (u) => 2 * u - 1);
  });

  it('exp under- and overflows', () => {
    expect(exp64(-745)).toBe(2 ** -1074);
    expect(Math.abs(exp64(-720) / Math.exp(-720) - 1)).toBeLessThan(1e-10);
    expect(exp64(-800)).toBe(0);
    expect(exp64(709.7)).toBeLessThan(Number.POSITIVE_INFINITY);
    expect(exp64(710)).toBe(Number.POSITIVE_INFINITY);
    expect(exp64(Number.NaN)).toBeNaN();
    expect(exp64(Number.NEGATIVE_INFINITY)).toBe(0);
    expect(exp64(0)).toBe(1);
  });

  it('log agrees with Math.log', () => {
    agrees(log64, Math.log, (u) => 2 ** (2000 * u - 1000));
    agrees(log64, Math.log, (u) => 0.5 + u);
    agrees(log64, Math.log, (u) => u * 2 ** -1030);
    expect(log64(1)).toBe(0);
    expect(log64(0)).toBe(Number.NEGATIVE_INFINITY);
    expect(log64(-1)).toBeNaN();
    expect(log64(Number.POSITIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
  });

  it('pow gives exact powers where they are exact', () => {
    for (let n = -300; n <= 300; n++) expect(pow64(2, n)).toBe(2 ** n);
    for (let n = 0; n <= 22; n++) expect(pow64(10, n)).toBe(Number(`1e${n}`));
    expect(pow64(1e4, 0.5)).toBe(100);
    expect(pow64(1e4, 0)).toBe(1);
  });

  it('pow is correctly rounded against integer arithmetic', () => {
    // y = b^(1/4) is the nearest double iff (y - half step)^4 < b < (y + half step)^4, in exact integers.
    for (const base of [10_000n, 500_000n, 1_000_000n, 123_457n]) {
      const y = pow64(Number(base), 0.25);
      const fine = BigInt(y * 2 ** 48) << 54n; // in units of 2^-102; y is from 10 to 32, so y * 2^48 is an integer
      const halfStep = 1n << BigInt(Math.floor(Math.log2(y)) - 53 + 102);
      const wanted = base << (4n * 102n);
      expect((fine - halfStep) ** 4n <= wanted && wanted <= (fine + halfStep) ** 4n).toBe(true);
    }
  });

  it.each([
    [-1, 2],
    [0, 1],
    [Number.NaN, 1],
    [Number.POSITIVE_INFINITY, 1],
    [2, Number.NaN],
    [2, Number.POSITIVE_INFINITY],
  ])('pow refuses %d to the %d', (base, exponent) => {
    expect(() => pow64(base, exponent)).toThrow(RangeError);
  });

  it('sine and cosine agree with Math, up to 2^20', () => {
    for (const scale of [1, 10, 1000, 2 ** 20]) {
      agrees(sin64, Math.sin, (u) => scale * (2 * u - 1));
      agrees(cos64, Math.cos, (u) => scale * (2 * u - 1));
    }
    agrees(sin64, Math.sin, (u) => 2 ** (-40 * u));
  });

  it('stay accurate beside multiples of pi / 2, where reduction cancels', () => {
    for (let n = 1; n < 600_000; n += 1 + Math.floor(n / 50)) {
      const x = n * (Math.PI / 2);
      expect(steps(sin64(x), Math.sin(x)), `sine at ${x}`).toBeLessThanOrEqual(1);
      expect(steps(cos64(x), Math.cos(x)), `cosine at ${x}`).toBeLessThanOrEqual(1);
    }
  });

  it('sine and cosine at the ends', () => {
    expect(Object.is(sin64(-0), -0)).toBe(true);
    expect(cos64(0)).toBe(1);
    expect(sin64(Number.POSITIVE_INFINITY)).toBeNaN();
    expect(cos64(Number.NaN)).toBeNaN();
    expect(() => sin64(2 ** 20 + 1)).toThrow(RangeError);
    expect(() => cos64(-(2 ** 21))).toThrow(RangeError);
  });
});
