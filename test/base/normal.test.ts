import { expect, test } from 'vitest';
import { normalCumulative, normalDensity, normalQuantile } from '../../src/base/normal.js';

test.each([
  [0, 0.5],
  [1, 0.841344746068543],
  [-1, 0.158655253931457],
  [1.959963984540054, 0.975],
  [3, 0.99865010196837],
  [-4, 3.167124183311986e-5],
])('the distribution at %d is the tabulated %d', (x, probability) => {
  expect(Math.abs(normalCumulative(x) - probability)).toBeLessThan(1e-14);
});

test('quantile and distribution undo each other', () => {
  for (const probability of [1e-9, 1e-4, 0.034, 0.3, 0.5, 0.7, 0.966, 1 - 1e-4, 1 - 1e-9]) {
    expect(Math.abs(normalCumulative(normalQuantile(probability)) - probability)).toBeLessThan(1e-13);
  }
  expect(() => normalQuantile(0)).toThrow(RangeError);
  expect(() => normalQuantile(Number.NaN)).toThrow(RangeError);
});

test('the density is the slope of the distribution', () => {
  for (let x = -4; x <= 4; x += 0.25) {
    const slope = (normalCumulative(x + 1e-4) - normalCumulative(x - 1e-4)) / 2e-4;
    expect(Math.abs(slope - normalDensity(x))).toBeLessThan(1e-8);
  }
});
