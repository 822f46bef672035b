import { expect, test } from 'vitest';
import { doubledMedian, nearestRank, percentileName } from '../../../src/lab/statistics/percentile.js';

const upTo = (count: number): bigint[] =>
  Array.from({ length: count }, (_, index) => BigInt(index + 1)).reverse();

test('nearest rank: the values of the textbook example', () => {
  const values = [15n, 20n, 35n, 40n, 50n];
  expect([5, 30, 40, 50, 100].map((percent) => nearestRank(values, percent)!.value)).toEqual([
    15n,
    20n,
    20n,
    35n,
    50n,
  ]);
});

test('ranks are exact where a floating-point product is not', () => {
  // 0.07 * 100 is 7.000000000000001 in binary64, whose ceiling would be 8.
  expect(nearestRank(upTo(100), 7)).toEqual({ value: 7n, count: 100, rank: 7 });
  expect(nearestRank(upTo(20), 95)).toEqual({ value: 19n, count: 20, rank: 19 });
});

test('a p95 of few values is their largest, and is called so', () => {
  expect(percentileName(95, nearestRank(upTo(10), 95)!)).toBe('max of p95');
  expect(percentileName(95, nearestRank(upTo(20), 95)!)).toBe('p95');
});

test('no values have no percentile and no median', () => {
  expect(nearestRank([], 50)).toBeNull();
  expect(doubledMedian([])).toBeNull();
  expect(doubledMedian([3n, 1n])).toBe(4n);
  expect(doubledMedian([9n, 1n, 3n])).toBe(6n);
});

test('integers beyond 2^53 stay exact', () => {
  const large = 2n ** 60n;
  expect(nearestRank([large + 1n, large], 50)!.value).toBe(large);
});
