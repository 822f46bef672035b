/** Comparisons of integers with bounds, without rounding. */

/** A decimal fraction such as "0.975" as a quotient of integers. */
export function exactFraction(text: string): { numerator: bigint; denominator: bigint } {
  const [whole = '0', fraction = ''] = text.split('.');
  return { numerator: BigInt(whole + fraction), denominator: 10n ** BigInt(fraction.length) };
}

/** value <= bound x of, for a decimal fraction. */
export function withinShare(value: bigint, of: bigint, bound: string): boolean {
  const { numerator, denominator } = exactFraction(bound);
  return value * denominator <= numerator * of;
}

/** A quotient of integers for a person, to six decimals, rounded down. */
export function quotientText(numerator: bigint, denominator: bigint): string {
  if (denominator === 0n) return 'undefined';
  const scaled = (numerator * 1_000_000n) / denominator;
  return `${scaled / 1_000_000n}.${String(scaled % 1_000_000n).padStart(6, '0')}`;
}
