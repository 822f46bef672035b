/** An ordinary least-squares fit of `values` on an intercept and the columns of `design`. */
export interface Fit {
  readonly intercept: number;
  /** One a column. */
  readonly slopes: readonly number[];
  readonly residuals: readonly number[];
  readonly degreesOfFreedom: number;
  /** Variance of the intercept over the variance of one value. */
  readonly interceptLeverage: number;
  /** The same for each slope. */
  readonly slopeLeverages: readonly number[];
}

/**
 * Fits values[i] = intercept + sum over j of slopes[j] * design[i][j], by the normal equations, which hold here: a
 * design has few columns of -1, 0 and 1. Null where the columns do not tell the intercept from the slopes.
 */
export function leastSquares(values: readonly number[], design: readonly (readonly number[])[]): Fit | null {
  const rows = design.map((row) => [1, ...row]);
  const width = rows[0]?.length ?? 1;
  const inverse = invert(
    Array.from({ length: width }, (_, i) =>
      Array.from({ length: width }, (_, j) => rows.reduce((sum, row) => sum + row[i]! * row[j]!, 0)),
    ),
  );
  if (inverse === null) return null;
  const moments = Array.from({ length: width }, (_, i) =>
    rows.reduce((sum, row, index) => sum + row[i]! * values[index]!, 0),
  );
  const coefficients = inverse.map((row) => row.reduce((sum, value, i) => sum + value * moments[i]!, 0));
  const residuals = rows.map(
    (row, index) => values[index]! - row.reduce((sum, value, i) => sum + value * coefficients[i]!, 0),
  );
  const [intercept, ...slopes] = coefficients;
  return {
    intercept: intercept!,
    slopes,
    residuals,
    degreesOfFreedom: values.length - width,
    interceptLeverage: inverse[0]![0]!,
    slopeLeverages: slopes.map((_, index) => inverse[index + 1]![index + 1]!),
  };
}

/** Gauss and Jordan with the largest pivot; null for a singular matrix of small whole numbers. */
function invert(matrix: readonly (readonly number[])[]): number[][] | null {
  const size = matrix.length;
  const work = matrix.map((row, index) => [
    ...row,
    ...Array.from({ length: size }, (_, j) => (j === index ? 1 : 0)),
  ]);
  for (let column = 0; column < size; column++) {
    let pivot = column;
    for (let row = column + 1; row < size; row++) {
      if (Math.abs(work[row]![column]!) > Math.abs(work[pivot]![column]!)) pivot = row;
    }
    const value = work[pivot]![column]!;
    if (!(Math.abs(value) > 1e-9)) return null;
    [work[column], work[pivot]] = [work[pivot]!, work[column]!];
    work[column] = work[column]!.map((entry) => entry / value);
    for (let row = 0; row < size; row++) {
      if (row === column) continue;
      const factor = work[row]![column]!;
      if (factor !== 0) work[row] = work[row]!.map((entry, j) => entry - factor * work[column]![j]!);
    }
  }
  return work.map((row) => row.slice(size));
}
