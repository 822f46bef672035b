/**
 * How often the paired percentile bootstrap at 95 % covers the truth, by simulation with normal noise on the log ratios
 * and order effects removed (docs/lab-statistics.md; `scripts/lab-coverage.mjs` prints the table). The Student interval covers 95 %.
 */
const measured: readonly (readonly [pairs: number, percent: number])[] = [
  [5, 83],
  [6, 82],
  [8, 85],
  [10, 88],
  [12, 90],
  [16, 92],
  [20, 93],
  [30, 95],
];

/** Percent of coverage at a number of pairs, that of the largest measured number not above it. */
export function bootstrapCoverage(pairs: number): number {
  let found = measured[0]![1];
  for (const [count, percent] of measured) if (count <= pairs) found = percent;
  return found;
}
