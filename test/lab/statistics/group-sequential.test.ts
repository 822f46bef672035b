import { describe, expect, test } from 'vitest';
import { uniform } from '../../../src/base/philox.js';
import {
  nominalConfidence,
  sequentialCriticalValues,
  spentAlpha,
} from '../../../src/lab/statistics/group-sequential.js';

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
    [5, [2.438, 2.427, 2.41, 2.397, 2.386]],
  ])('Pocock spending, %i looks, as published', (count, published) => {
    const found = sequentialCriticalValues(0.95, equal(count), 'pocock');
    for (const [look, value] of published.entries()) expect(found[look]).toBeCloseTo(value, 2);
  });

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
