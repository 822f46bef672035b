import { describe, expect, test } from 'vitest';
import { uniform } from '../../../src/base/philox.js';
import {
  nominalConfidence,
  sequentialCriticalValues,
  spentAlpha,
} from '../../../src/lab/statistics/group-sequential.js';

/** Nodes and weights of Gauss and Legendre on [-1, 1], by Newton's method on Legendre's polynomials. */
function gaussLegendre(count: number): { readonly node: number; readonly weight: number }[] {
  return Array.from({ length: count }, (_, index) => {
    let node = Math.cos((Math.PI * (index + 0.75)) / (count + 0.5));
    let derivative = 1;
    for (let round = 0; round < 100; round++) {
      let [value, before] = [1, 0];
      for (let degree = 1; degree <= count; degree++)
        [value, before] = [((2 * degree - 1) * node * value - (degree - 1) * before) / degree, value];
      derivative = (count * (node * value - before)) / (node * node - 1);
      const step = value / derivative;
      node -= step;
      if (Math.abs(step) < 1e-15) break;
    }
    return { node, weight: 2 / ((1 - node * node) * derivative * derivative) };
  });
}

const rule = gaussLegendre(160);

/** Probability, up to each look, that a normal mean's statistic was beyond its critical value on either side. */
function exits(criticals: readonly number[], looks: readonly number[]): number[] {
  const normal = (x: number): number => Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);
  // What stays inside is integrated; nothing of the normal's tail is needed
  let density: { point: number; mass: number }[] = [{ point: 0, mass: 1 }];
  let before = 0;
  return looks.map((look, index) => {
    const bound = criticals[index]! * Math.sqrt(look);
    const step = Math.sqrt(look - before);
    before = look;
    density = rule.map(({ node, weight }) => {
      const point = bound * node;
      const value = density.reduce((sum, from) => sum + from.mass * normal((point - from.point) / step), 0);
      return { point, mass: (value / step) * bound * weight };
    });
    return 1 - density.reduce((sum, { mass }) => sum + mass, 0);
  });
}

const equal = (count: number) => Array.from({ length: count }, (_, index) => 10 * (index + 1));

describe('critical values of a group-sequential test', () => {
  // Two-sided 5 %, equal looks: boundaries of Lan and DeMets' O'Brien-Fleming function as their program ld98 and the R
  // packages ldbounds and gsDesign print them
  test.each([
    [2, [2.9626, 1.9686]],
    [3, [3.7103, 2.5114, 1.993]],
    [4, [4.3326, 2.9631, 2.359, 2.0141]],
    [5, [4.8769, 3.3569, 2.6803, 2.2898, 2.031]],
  ])('O’Brien-Fleming spending, %i looks, as published', (count, published) => {
    const found = sequentialCriticalValues(0.95, equal(count), 'obrien-fleming');
    for (const [look, value] of published.entries()) expect(found[look]).toBeCloseTo(value, 3);
  });

  // The same programs for Pocock's function
  test.each([
    [2, [2.157, 2.201]],
    [3, [2.279, 2.295, 2.296]],
    [4, [2.368, 2.368, 2.358, 2.35]],
    [5, [2.438, 2.427, 2.41, 2.397, 2.386]],
  ])('Pocock spending, %i looks, as published', (count, published) => {
    const found = sequentialCriticalValues(0.95, equal(count), 'pocock');
    for (const [look, value] of published.entries()) expect(found[look]).toBeCloseTo(value, 3);
  });

  // Another quadrature, held to the constants of the tests that came first: C. Jennison and B. W. Turnbull, "Group
  // Sequential Methods" (2000), tables 2.1 (Pocock) and 2.3 (O'Brien and Fleming), two-sided 5 %
  test.each([
    [2, 2.178, 1.977],
    [3, 2.289, 2.004],
    [4, 2.361, 2.024],
    [5, 2.413, 2.04],
  ])('an independent integration has the published constants of %i looks', (count, pocock, obrienFleming) => {
    const constant = (shape: (look: number) => number): number => {
      let [low, high] = [1.5, 3];
      while (high - low > 1e-7) {
        const middle = (low + high) / 2;
        const bounds = equal(count).map((_, index) => middle * shape(index + 1));
        if (exits(bounds, equal(count)).at(-1)! > 0.05) low = middle;
        else high = middle;
      }
      return low;
    };
    expect(constant(() => 1)).toBeCloseTo(pocock, 3);
    expect(constant((look) => Math.sqrt(count / look))).toBeCloseTo(obrienFleming, 3);
  });

  test.each(['obrien-fleming', 'pocock'] as const)(
    '%s: what is spent at each look is what was to be',
    (spending) => {
      for (const looks of [equal(5), [10, 14, 20], [3, 4, 40], [10, 11, 12, 80, 81]]) {
        const criticals = sequentialCriticalValues(0.95, looks, spending);
        for (const [index, spent] of exits(criticals, looks).entries()) {
          const wanted = spentAlpha(0.05, looks[index]! / looks.at(-1)!, spending);
          // Critical values have six decimals
          expect(Math.abs(spent - wanted), `look ${index + 1} of ${looks}`).toBeLessThan(1e-6);
        }
      }
    },
  );

  test('one look is the fixed test', () => {
    expect(sequentialCriticalValues(0.95, [12], 'obrien-fleming')[0]).toBeCloseTo(1.959964, 5);
    expect(nominalConfidence(1.959964)).toBeCloseTo(0.95, 6);
  });

  test('the whole error is spent at the end and none before the begin', () => {
    for (const spending of ['obrien-fleming', 'pocock'] as const) {
      expect(spentAlpha(0.05, 1, spending)).toBe(0.05);
      expect(spentAlpha(0.05, 1e-6, spending)).toBeLessThan(1e-6);
    }
  });

  test('random walks leave the region as often as stated', () => {
    const looks = [10, 14, 22, 40];
    for (const spending of ['obrien-fleming', 'pocock'] as const) {
      const criticals = sequentialCriticalValues(0.95, looks, spending);
      const walks = 20_000;
      let alarms = 0;
      for (let walk = 0; walk < walks; walk++) {
        let sum = 0;
        let before = 0;
        const crossed = looks.some((look, index) => {
          const radius = Math.sqrt(-2 * Math.log(1 - uniform(77, walk, 2 * index)));
          sum += radius * Math.cos(2 * Math.PI * uniform(77, walk, 2 * index + 1)) * Math.sqrt(look - before);
          before = look;
          return Math.abs(sum) / Math.sqrt(look) > criticals[index]!;
        });
        if (crossed) alarms++;
      }
      // Four standard errors of 0.15 points
      expect(Math.abs(alarms / walks - 0.05), `seed 77, ${spending}: ${alarms} of ${walks}`).toBeLessThan(
        0.0062,
      );
    }
  });

  test('looks that do not rise are refused', () => {
    expect(() => sequentialCriticalValues(0.95, [10, 10], 'pocock')).toThrow(RangeError);
    expect(() => sequentialCriticalValues(1, [10, 20], 'pocock')).toThrow(RangeError);
  });
});
