import { expect, test } from 'vitest';
import { symmetricEigen } from '../../src/checkpoint/symmetric-eigen.js';
import { CaseRandom } from '../backend/contract/case-random.js';

const seed = 20261205;

/** Symmetric, of a rank, with a scale that falls from row to row. */
function symmetric(random: CaseRandom, size: number, rank: number, fall: number): Float64Array[] {
  const axes = Array.from({ length: rank }, (_, k) =>
    Float64Array.from({ length: size }, () => (2 * random.uniform() - 1) * fall ** k),
  );
  const sign = (k: number) => (k % 3 === 2 ? -1 : 1); // not every eigenvalue is positive
  return Array.from({ length: size }, (_, i) =>
    Float64Array.from({ length: size }, (_unused, j) =>
      axes.reduce((sum, axis, k) => sum + sign(k) * axis[i]! * axis[j]!, 0),
    ),
  );
}

test.each([
  [1, 1, 1],
  [2, 2, 1],
  [3, 1, 1],
  [17, 17, 1],
  [40, 5, 0.5],
  [64, 64, 0.6],
  [90, 90, 0.97],
])(
  `a matrix of %d rows, rank %d, is put together again by what is found (seed ${seed})`,
  (size, rank, fall) => {
    const random = new CaseRandom(seed, size);
    const matrix = symmetric(random, size, rank, fall);
    const { values, vectors } = symmetricEigen(matrix.map((row) => row.slice()));
    const norm = Math.sqrt(matrix.reduce((sum, row) => sum + row.reduce((all, x) => all + x * x, 0), 0));
    for (let i = 0; i < size; i += 1) {
      for (let j = 0; j < size; j += 1) {
        const again = vectors.reduce((sum, vector, k) => sum + values[k]! * vector[i]! * vector[j]!, 0);
        expect(Math.abs(again - matrix[i]![j]!)).toBeLessThan(1e-13 * size * norm);
        const dot = vectors[i]!.reduce((sum, x, at) => sum + x * vectors[j]![at]!, 0);
        expect(Math.abs(dot - (i === j ? 1 : 0))).toBeLessThan(1e-13 * size);
      }
    }
  },
);

test('a diagonal matrix is its own answer', () => {
  const matrix = [3, -2, 0, 7].map((value, at) => new Float64Array(4).fill(value, at, at + 1));
  expect([...symmetricEigen(matrix).values]).toEqual([3, -2, 0, 7]);
});

test('what is no number ends', () => {
  const matrix = Array.from({ length: 3 }, () => new Float64Array(3).fill(Number.NaN));
  expect(symmetricEigen(matrix).values.every(Number.isNaN)).toBe(true);
});
