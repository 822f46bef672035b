import { describe, expect, it } from 'vitest';
import { roundDirections } from '../../src/checkpoint/low-bit-copy.js';
import { principalDirections } from '../../src/checkpoint/principal-directions.js';
import { CaseRandom } from '../backend/contract/case-random.js';

const seed = 20261203;
const dot = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((sum, value, i) => sum + value * b[i]!, 0);

describe(`principal directions (seed ${seed})`, () => {
  it('are of unit length, apart, and hold a sample that lies in few dimensions', () => {
    const random = new CaseRandom(seed, 1);
    const inputs = 48;
    const axes = Array.from({ length: 5 }, () => random.floats(inputs, 'plain'));
    const rows = Array.from({ length: 40 }, () => {
      const row = new Float32Array(inputs);
      for (const [place, axis] of axes.entries()) {
        const weight = (2 * random.uniform() - 1) / (1 + place);
        for (let i = 0; i < inputs; i += 1) row[i]! += weight * axis[i]!;
      }
      return row;
    });
    const found = principalDirections(rows, inputs, 16);
    expect(found).toHaveLength(16);
    for (const [a, first] of found.entries()) {
      const length = dot(first, first);
      expect(length === 0 || Math.abs(length - 1) < 1e-9).toBe(true);
      for (const second of found.slice(0, a)) expect(Math.abs(dot(first, second))).toBeLessThan(1e-6);
    }
    expect(found.filter((direction) => dot(direction, direction) > 0)).toHaveLength(5);
    for (const row of rows) {
      const inside = found.reduce((sum, direction) => sum + dot(direction, row) ** 2, 0);
      expect(inside / dot(row, row)).toBeGreaterThan(1 - 1e-6);
    }
  });

  it('come in the order of what they hold', () => {
    const rows = [Float32Array.of(3, 0, 0), Float32Array.of(0, 7, 0), Float32Array.of(0, 0, 5)];
    const places = principalDirections(rows, 3, 2).map((direction) =>
      Array.from(direction).findIndex((value) => Math.abs(value) > 0.999),
    );
    expect(places).toEqual([1, 2]);
  });

  it('are stored in whole numbers that sums have room for', () => {
    const { elements, exponent, count } = roundDirections([Float64Array.of(0.9, -0.43, 0)], 3);
    expect([count, elements.length]).toEqual([1, 32]);
    expect(Math.max(...elements)).toBeLessThanOrEqual(8191);
    expect(elements[0]! * 2 ** -exponent).toBeCloseTo(0.9, 3);
    expect(elements[1]! * 2 ** -exponent).toBeCloseTo(-0.43, 3);
  });
});
