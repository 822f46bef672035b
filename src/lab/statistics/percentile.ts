/**
 * Nearest-rank percentiles: always a value that was measured. Of n sorted values the p-th percentile is the one of rank
 * ceil(p n / 100), counted from 1.
 */
export interface Percentile {
  readonly value: bigint;
  /** From how many values. */
  readonly count: number;
  /** Rank from 1. Where it is `count`, the percentile is the largest value and is called so. */
  readonly rank: number;
}

/** Null for no values. `percent` is a whole number from 1 to 100. */
export function nearestRank(values: readonly bigint[], percent: number): Percentile | null {
  if (!Number.isSafeInteger(percent) || percent < 1 || percent > 100) {
    throw new RangeError(`Cannot take percentile ${percent}: want an integer from 1 to 100`);
  }
  const count = values.length;
  if (count === 0) return null;
  const rank = Math.floor((percent * count + 99) / 100);
  return { value: ascending(values)[rank - 1]!, count, rank };
}

/** What a percentile is to be called: a p95 of fewer than 20 values is their largest. */
export function percentileName(percent: number, { rank, count }: Percentile): string {
  return rank === count && percent < 100 ? `max of p${percent}` : `p${percent}`;
}

/** Twice the median, so that the mean of two middle integers stays exact; null for no values. */
export function doubledMedian(values: readonly bigint[]): bigint | null {
  if (values.length === 0) return null;
  const sorted = ascending(values);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? 2n * sorted[middle]! : sorted[middle - 1]! + sorted[middle]!;
}

export function ascending(values: readonly bigint[]): bigint[] {
  return [...values].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
}
