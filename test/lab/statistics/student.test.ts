import { expect, test } from 'vitest';
import { studentCentral, studentQuantile } from '../../../src/lab/statistics/student.js';

// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: upper critical values of Student's t; two-sided here.
const published: readonly [degrees: number, at90: number, at95: number, at99: number][] = [
  [1, 6.314, 12.706, 63.657],
  [2, 2.92, 4.303, 9.925],
  [3, 2.353, 3.182, 5.841],
  [4, 2.132, 2.776, 4.604],
  [5, 2.015, 2.571, 4.032],
  [8, 1.86, 2.306, 3.355],
  [9, 1.833, 2.262, 3.25],
  [10, 1.812, 2.228, 3.169],
  [18, 1.734, 2.101, 2.878],
  [29, 1.699, 2.045, 2.756],
  [30, 1.697, 2.042, 2.75],
  [60, 1.671, 2.0, 2.66],
  [100, 1.66, 1.984, 2.626],
];

test.each(published)(
  'quantiles of %d degrees of freedom are the published ones',
  (degrees, at90, at95, at99) => {
    const rounded = (confidence: number) => Number(studentQuantile(confidence, degrees).toFixed(3));
    expect([rounded(0.9), rounded(0.95), rounded(0.99)]).toEqual([at90, at95, at99]);
  },
);

test('the quantile inverts the distribution', () => {
  for (const degrees of [1, 2, 7, 8, 40, 41]) {
    for (const confidence of [0.01, 0.5, 0.8, 0.975, 0.9999]) {
      expect(studentCentral(studentQuantile(confidence, degrees), degrees)).toBeCloseTo(confidence, 12);
    }
  }
});

test('closed forms: 1 degree is Cauchy, 2 degrees are t / sqrt(2 + t^2)', () => {
  for (const t of [0, 0.1, 1, 3, 50]) {
    expect(studentCentral(t, 1)).toBeCloseTo((2 / Math.PI) * Math.atan(t), 14);
    expect(studentCentral(t, 2)).toBeCloseTo(t / Math.sqrt(2 + t * t), 14);
  }
});

test('refuses what has no meaning', () => {
  expect(() => studentQuantile(1, 5)).toThrow(RangeError);
  expect(() => studentQuantile(Number.NaN, 5)).toThrow(RangeError);
  expect(() => studentQuantile(0.95, 0)).toThrow(RangeError);
  expect(() => studentQuantile(0.95, 1.5)).toThrow(RangeError);
  expect(() => studentCentral(-1, 5)).toThrow(RangeError);
});
