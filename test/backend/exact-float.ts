/**
 * binary32 arithmetic in integers, with no floating-point operation that could round: every finite number is a whole
 * multiple of 2^-149. An independent check of what Math.fround makes of binary64 operations. Finite operands only.
 */

const unitBits = 149n;

function units(value: number): bigint {
  let exponent = 0;
  let scaled = value;
  // Scaling by powers of two is exact; what is left is an integer below 2^53.
  while (!Number.isInteger(scaled)) {
    scaled *= 2;
    exponent += 1;
  }
  return (BigInt(scaled) << unitBits) >> BigInt(exponent);
}

function isNegative(value: number): boolean {
  return value < 0 || Object.is(value, -0);
}

/** The binary32 nearest to numerator / denominator units, ties to even. */
function nearest(numerator: bigint, denominator: bigint, negative: boolean): number {
  const quotient = numerator / denominator;
  const length = quotient === 0n ? 0 : quotient.toString(2).length;
  const shift = BigInt(Math.max(0, length - 24));
  const step = denominator << shift;
  let kept = numerator / step;
  const twice = 2n * (numerator % step);
  if (twice > step || (twice === step && kept % 2n === 1n)) kept += 1n;
  const result = kept << shift;
  const magnitude = result >= 1n << (128n + unitBits) ? Number.POSITIVE_INFINITY : Number(result) * 2 ** -149;
  return negative ? -magnitude : magnitude;
}

function magnitudeOf(value: bigint): bigint {
  return value < 0n ? -value : value;
}

export function exactAdd(a: number, b: number): number {
  const sum = units(a) + units(b);
  if (sum === 0n) return isNegative(a) && isNegative(b) ? -0 : 0;
  return nearest(magnitudeOf(sum), 1n, sum < 0n);
}

export function exactMultiply(a: number, b: number): number {
  const product = magnitudeOf(units(a) * units(b));
  return nearest(product, 1n << unitBits, isNegative(a) !== isNegative(b));
}

export function exactDivide(a: number, b: number): number {
  const numerator = magnitudeOf(units(a)) << unitBits;
  return nearest(numerator, magnitudeOf(units(b)), isNegative(a) !== isNegative(b));
}

export function exactSquareRoot(a: number): number {
  const square = units(a) << (unitBits + 120n); // the root gets 60 bits behind the unit
  const root = integerRoot(square);
  const sticky = root * root === square ? 0n : 1n;
  return nearest(2n * root + sticky, 1n << 61n, false);
}

function integerRoot(value: bigint): bigint {
  if (value === 0n) return 0n;
  let root = 1n << BigInt(Math.ceil(value.toString(2).length / 2));
  for (;;) {
    const next = (root + value / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

/** The block rule over terms. */
export function exactBlockSum(terms: readonly number[]): number {
  let y = 0;
  for (let block = 0; block < terms.length; block += 128) {
    y = exactAdd(y, terms.slice(block, block + 128).reduce(exactAdd, 0));
  }
  return y;
}

export function exactDot(x: readonly number[], w: readonly number[]): number {
  return exactBlockSum(x.map((value, index) => exactMultiply(value, w[index]!)));
}
