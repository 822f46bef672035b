import { describe, expect, it } from 'vitest';
import { littleEndianBytes, sha256Hex } from '../../src/base/digest.js';
import {
  erf32,
  exp32,
  gelu32,
  geluTanh32,
  quickGelu32,
  sigmoid32,
  silu32,
  tanh32,
} from '../../src/base/elementary.js';

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

function floatOf(encoding: number): number {
  bits[0] = encoding;
  return float[0]!;
}

/** Distance in units in the last place of the exact value, whose place is that of binary32 with subnormals. */
function ulps(got: number, exact: number): number {
  float[0] = exact;
  if (got === float[0]) return 0; // infinities too
  const exponent = Math.min(Math.max((bits[0]! >>> 23) & 255, 1), 254);
  return Math.abs(got - exact) / 2 ** (exponent - 150);
}

/** Largest error over encodings from..to (of both signs) in steps. */
function worst(
  got: (x: number) => number,
  exact: (x: number) => number,
  from: number,
  to: number,
  step: number,
): { ulps: number; at: number } {
  let most = { ulps: 0, at: 0 };
  for (let encoding = from; encoding < to; encoding += step) {
    for (const sign of [0, 0x80000000]) {
      const x = floatOf((encoding | sign) >>> 0);
      const error = ulps(got(x), exact(x));
      if (!(error <= most.ulps)) most = { ulps: error, at: x }; // NaN counts as worst
    }
  }
  return most;
}

/** 2 / sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (2n+1)!!: no cancellation, about 1e-15. */
function erfReference(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > Math.abs(sum) * 1e-17; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return x === 0 ? x : (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

const infinityBits = 0x7f800000;
const encodingOf = (value: number): number => {
  float[0] = value;
  return bits[0]!;
};

describe('exp32', () => {
  it('is within 1 ulp over all exponents', () => {
    expect(worst(exp32, Math.exp, 0, infinityBits, 1009).ulps).toBeLessThan(1);
  });

  it('is within 1 ulp for every binary32 from 4 to 8, and densely from 64 to 128', () => {
    expect(worst(exp32, Math.exp, encodingOf(4), encodingOf(8), 1).ulps).toBeLessThan(1);
    expect(worst(exp32, Math.exp, encodingOf(64), encodingOf(128), 17).ulps).toBeLessThan(1);
  });

  it('goes through the subnormals to +0 and up to infinity', () => {
    expect(worst(exp32, Math.exp, encodingOf(87), encodingOf(104.5), 1).ulps).toBeLessThan(1);
    expect(exp32(-103.97)).toBe(2 ** -149);
    expect(exp32(Math.fround(-103.98))).toBe(0);
    expect(Object.is(exp32(-1e30), 0)).toBe(true);
    expect(exp32(Math.fround(88.7228))).toBeLessThan(Number.POSITIVE_INFINITY);
    expect(exp32(Math.fround(88.73))).toBe(Number.POSITIVE_INFINITY);
    expect(exp32(Number.POSITIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
    expect(Object.is(exp32(Number.NEGATIVE_INFINITY), 0)).toBe(true);
    expect(exp32(Number.NaN)).toBeNaN();
    expect(exp32(0)).toBe(1);
    expect(exp32(-0)).toBe(1);
  });
});

describe('tanh32', () => {
  it('is within 2 ulp over all exponents, and in every binary32 about the seam', () => {
    expect(worst(tanh32, Math.tanh, 0, infinityBits, 2003).ulps).toBeLessThan(2);
    expect(worst(tanh32, Math.tanh, encodingOf(0.5), encodingOf(1), 5).ulps).toBeLessThan(2);
    expect(worst(tanh32, Math.tanh, encodingOf(0.74), encodingOf(0.76), 1).ulps).toBeLessThan(2);
  });

  it('is odd, keeps zero signs, ends at 1 and passes NaN', () => {
    for (const x of [0, 2 ** -149, 1e-20, 0.3, 0.75, 2, 9, 30, Number.POSITIVE_INFINITY]) {
      expect(Object.is(tanh32(-x), -tanh32(x))).toBe(true);
    }
    expect(tanh32(10)).toBe(1);
    expect(tanh32(Number.POSITIVE_INFINITY)).toBe(1);
    expect(tanh32(2 ** -149)).toBe(2 ** -149);
    expect(tanh32(Number.NaN)).toBeNaN();
  });
});

describe('erf32', () => {
  it('agrees in its reference with printed values (Abramowitz and Stegun, table 7.1)', () => {
    expect(erfReference(0.5)).toBeCloseTo(0.5204998778, 10);
    expect(erfReference(1)).toBeCloseTo(0.8427007929, 10);
    expect(erfReference(2)).toBeCloseTo(0.995322265, 9);
  });

  it('is within 2 ulp over all exponents, and in every binary32 about the seam', () => {
    expect(worst(erf32, erfReference, 0, infinityBits, 10_007).ulps).toBeLessThan(2);
    expect(worst(erf32, erfReference, encodingOf(0.25), encodingOf(4), 61).ulps).toBeLessThan(2);
    expect(worst(erf32, erfReference, encodingOf(0.995), encodingOf(1.005), 1).ulps).toBeLessThan(2);
  });

  it('is odd, keeps zero signs, ends at 1 and passes NaN', () => {
    for (const x of [0, 2 ** -149, 1e-20, 0.3, 1, 3, 30, Number.POSITIVE_INFINITY]) {
      expect(Object.is(erf32(-x), -erf32(x))).toBe(true);
    }
    expect(erf32(4)).toBe(1);
    expect(erf32(Number.POSITIVE_INFINITY)).toBe(1);
    expect(erf32(Number.NaN)).toBeNaN();
  });
});

describe('activations made of them', () => {
  const points = Float32Array.from({ length: 4001 }, (_, index) => (index - 2000) / 100);
  // 1 + tanh and 1 + erf cancel for negative arguments, as they do in every implementation of these formulas.
  it.each<[string, (x: number) => number, (x: number) => number, number]>([
    ['sigmoid', sigmoid32, (x) => 1 / (1 + Math.exp(-x)), 1e-7],
    ['silu', silu32, (x) => x / (1 + Math.exp(-x)), 2e-7],
    ['quick_gelu', quickGelu32, (x) => x / (1 + Math.exp(-1.702 * x)), 5e-7],
    ['gelu', gelu32, (x) => 0.5 * x * (1 + erfReference(x * Math.SQRT1_2)), 4e-7],
    [
      'gelu_tanh',
      geluTanh32,
      (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
      4e-7,
    ],
  ])('%s agrees with binary64', (_, got, exact, tolerance) => {
    for (const x of points) {
      const wanted = exact(x);
      expect(Math.abs(got(x) - wanted), `at ${x}`).toBeLessThanOrEqual(
        tolerance * Math.max(1, Math.abs(wanted)),
      );
    }
    expect(got(Number.NaN)).toBeNaN();
  });

  it('take infinities as their formulas do', () => {
    expect(sigmoid32(Number.POSITIVE_INFINITY)).toBe(1);
    expect(Object.is(sigmoid32(Number.NEGATIVE_INFINITY), 0)).toBe(true);
    for (const activation of [silu32, gelu32, geluTanh32, quickGelu32]) {
      expect(activation(Number.POSITIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
      expect(activation(Number.NEGATIVE_INFINITY)).toBeNaN();
    }
  });
});

describe('the contract', () => {
  // Every operation is stated in docs/numerics.md, so a change of any bit is a change of the contract.
  it.each<[string, (x: number) => number, string]>([
    ['exp32', exp32, '09694fab6293ff3745db071674da144af3a5b026b4b97a1e18ef06cf80d818bc'],
    ['tanh32', tanh32, '156c91397796ca05d5569ab3c2f16c037876c80d034e47400f3d452d7d6c4c75'],
    ['erf32', erf32, '139b19dbc20f3b3f46324b1ece5efaae105f353649a86418cf4753a49bbd5b2e'],
    ['sigmoid', sigmoid32, '410b1291c20fc02b407e22ca2dfbc811d4a8332b5fe8986e2f10d3839ed5246e'],
    ['silu', silu32, 'f994c42f34e078ff85348097b973f6b0c0b1c3371f9b7939965e15ff6f356c56'],
    ['gelu', gelu32, '4f1afb447953b2afa8e7571547b051899c68b8ee1e22fc71be7a9d06db8d8d0e'],
    ['gelu_tanh', geluTanh32, '28dd4b53018c63d738d31c575a79409d7595b804dc8f9ddc9a9be518bf7205c3'],
    ['quick_gelu', quickGelu32, '2a8d50bfc7ee6db6e4369e09b5110572b25a01b3ee067eb1805a65b76e07a294'],
  ])('fixes the bits of %s', (_, apply, digest) => {
    const results: number[] = [];
    for (let encoding = 0; encoding < infinityBits; encoding += 30_011) {
      for (const sign of [0, 0x80000000]) {
        const y = apply(floatOf((encoding | sign) >>> 0));
        results.push(Number.isNaN(y) ? 0 : y);
      }
    }
    expect(sha256Hex(littleEndianBytes(Float32Array.from(results)))).toBe(digest);
  });
});

it.each([
  ['exp32', exp32, Math.exp, 0xc0bb0605, 0.998161],
  ['tanh32', tanh32, Math.tanh, 0x3f433c63, 1.066124],
  ['erf32', erf32, erfReference, 0x3f879e9a, 1.357625],
] as const)(
  '%s errs most where a search through every binary32 found it',
  (_, got, exact, encoding, most) => {
    const x = floatOf(encoding);
    expect(ulps(got(x), exact(x))).toBeCloseTo(most, 5);
  },
);
