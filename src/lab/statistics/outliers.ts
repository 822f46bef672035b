/** Beyond this many robust deviations a value is pointed out (Iglewicz and Hoaglin, 1993). */
const farAway = 3.5;
/** Normal deviation over median absolute deviation: 1 / quantile(3/4). */
const normalScale = 1.482602218505602;

/** Indices of values far from the median, by the median absolute deviation. They are shown, never removed. */
export function outlierIndices(values: readonly number[]): number[] {
  const centre = median(values);
  const deviation = normalScale * median(values.map((value) => Math.abs(value - centre)));
  if (!(deviation > 0)) return [];
  return values.flatMap((value, index) => (Math.abs(value - centre) > farAway * deviation ? [index] : []));
}

function median(values: readonly number[]): number {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
