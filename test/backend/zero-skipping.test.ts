import { describe, expect, it } from 'vitest';
import { CaseRandom, finiteFlavors } from './contract/case-random.js';

const seed = 97;
const f = Math.fround;

/** The block rule over all inputs, then bias and residual. */
function dense(x: Float32Array, w: Float32Array, bias: number, residual: number): number {
  return summed(x, w, bias, residual, false);
}

/** The same without the inputs that are zero, and without blocks that hold nothing else. */
function sparse(x: Float32Array, w: Float32Array, bias: number, residual: number): number {
  return summed(x, w, bias, residual, true);
}

function summed(x: Float32Array, w: Float32Array, bias: number, residual: number, skips: boolean): number {
  let y = 0;
  for (let block = 0; block < x.length; block += 128) {
    let acc = 0;
    let used = !skips;
    for (let i = block; i < Math.min(block + 128, x.length); i++) {
      if (skips && x[i] === 0) continue;
      used = true;
      acc = f(acc + f(x[i]! * w[i]!));
    }
    if (used) y = f(y + acc);
  }
  return f(f(y + bias) + residual);
}

describe(`leaving out zero inputs (seed ${seed})`, () => {
  it('changes no bit of 60,000 sums with finite weights', () => {
    const zeroShares = [0.1, 0.5, 0.97, 1];
    for (let number = 0; number < 60_000; number++) {
      const random = new CaseRandom(seed, number);
      const count = 1 + random.below(number % 20 === 0 ? 400 : 40);
      const flavor = random.pick(finiteFlavors);
      const zeroShare = random.pick(zeroShares);
      const w = random.floats(count, flavor);
      const x = random
        .floats(count, random.pick(finiteFlavors))
        .map((value) => (random.chance(zeroShare) ? random.value('zero') : value));
      const bias = random.value(random.pick(['zero', flavor]));
      const residual = random.value(random.pick(['zero', flavor]));
      if (!Object.is(dense(x, w, bias, residual), sparse(x, w, bias, residual))) {
        expect.fail(
          `case ${number}: dense ${dense(x, w, bias, residual)}, sparse ${sparse(x, w, bias, residual)}`,
        );
      }
    }
  });

  it('would change a sum with an infinite or NaN weight', () => {
    for (const weight of [Number.POSITIVE_INFINITY, Number.NaN]) {
      const x = Float32Array.of(0, 1);
      const w = Float32Array.of(weight, 1);
      expect(dense(x, w, 0, 0)).toBeNaN();
      expect(sparse(x, w, 0, 0)).toBe(1);
    }
  });

  it('would change a sum that starts from a stored -0', () => {
    // Why a sum starts from +0: -0 + (0 * w) is +0, and leaving the product out would keep -0.
    expect(Object.is(f(-0 + f(0 * 1)), 0)).toBe(true);
  });
});
