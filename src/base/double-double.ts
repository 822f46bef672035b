/**
 * Sums of two binary64 numbers, about 106 bits: enough room for exp, log and pow to be rounded once at the end.
 * Dekker's and Knuth's error-free transformations (T. J. Dekker, "A floating-point technique for extending the
 * available precision", 1971). Only + - * / of binary64.
 */
export interface DoubleDouble {
  readonly high: number;
  readonly low: number; // |low| is at most half a unit in the last place of high
}

const splitter = 2 ** 27 + 1;

/** a + b exactly, for any a and b. */
export function twoSum(a: number, b: number): DoubleDouble {
  const high = a + b;
  const bPart = high - a;
  return { high, low: a - (high - bPart) + (b - bPart) };
}

/** a * b exactly, while nothing over- or underflows. */
export function twoProduct(a: number, b: number): DoubleDouble {
  const high = a * b;
  const aScaled = splitter * a;
  const aHigh = aScaled - (aScaled - a);
  const aLow = a - aHigh;
  const bScaled = splitter * b;
  const bHigh = bScaled - (bScaled - b);
  const bLow = b - bHigh;
  return { high, low: aLow * bLow - (high - aHigh * bHigh - aLow * bHigh - aHigh * bLow) };
}

export function add(a: DoubleDouble, b: DoubleDouble): DoubleDouble {
  const sum = twoSum(a.high, b.high);
  return renormalized(sum.high, sum.low + (a.low + b.low));
}

export function multiply(a: DoubleDouble, b: DoubleDouble): DoubleDouble {
  const product = twoProduct(a.high, b.high);
  return renormalized(product.high, product.low + (a.high * b.low + a.low * b.high));
}

export function divide(a: DoubleDouble, b: DoubleDouble): DoubleDouble {
  const quotient = a.high / b.high;
  const product = multiply(b, { high: quotient, low: 0 });
  const rest = a.high - product.high - product.low + a.low;
  return renormalized(quotient, rest / b.high);
}

/** Needs |high| >= |low|. */
function renormalized(high: number, low: number): DoubleDouble {
  const sum = high + low;
  return { high: sum, low: low - (sum - high) };
}
