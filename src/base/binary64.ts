import { add, type DoubleDouble, divide, multiply, twoProduct, twoSum } from './double-double.js';

/**
 * Elementary functions in binary64 from + - * / and bit operations alone, so that what is derived from them (RoPE
 * tables, log-probabilities) is the same on every machine; `Math.exp` and its like differ between engines. exp, log
 * and pow carry about 100 bits and round once; sin and cos are within 1 ulp. Slow, for tables and not for kernels.
 */

const float = new Float64Array(1);
const words = new BigInt64Array(float.buffer);

const reciprocalLn2 = Math.LOG2E;
// ln 2 in three parts; the first has 32 bits, so that its product with an exponent is exact.
const ln2First = 0.6931471803691238;
const ln2Second = 1.9082149292705877e-10;
const ln2Third = 1.1612227229362532e-26;
const one: DoubleDouble = { high: 1, low: 0 };
const exponentialTerms = 22;
const logarithmTerms = 22;

/** e^x. */
export function exp64(x: number): number {
  return exponential({ high: x, low: 0 });
}

/** Natural logarithm; -Infinity at 0, NaN below. */
export function log64(x: number): number {
  if (Number.isNaN(x) || x < 0) return Number.NaN;
  if (x === 0) return Number.NEGATIVE_INFINITY;
  if (x === Number.POSITIVE_INFINITY) return x;
  return logarithm(x).high;
}

/**
 * base^exponent for a positive, finite base and a finite exponent.
 * @throws RangeError for others
 */
export function pow64(base: number, exponent: number): number {
  if (!(base > 0 && base < Number.POSITIVE_INFINITY && Number.isFinite(exponent))) {
    throw new RangeError(
      `Cannot raise ${base} to ${exponent}: want a positive finite base, a finite exponent`,
    );
  }
  const log = logarithm(base);
  const size = exponent * log.high;
  if (Math.abs(size) > 800) return size > 0 ? Number.POSITIVE_INFINITY : 0;
  return exponential(multiply(log, { high: exponent, low: 0 }));
}

/** e^(high + low): Taylor's series in Horner's form on what remains after whole multiples of ln 2. */
function exponential(x: DoubleDouble): number {
  if (Number.isNaN(x.high)) return Number.NaN;
  if (x.high > 710) return Number.POSITIVE_INFINITY;
  if (x.high < -746) return 0;
  const k = Math.floor(x.high * reciprocalLn2 + 0.5);
  let r = twoSum(x.high, -k * ln2First);
  r = add(r, { high: x.low, low: 0 });
  r = add(r, twoProduct(-k, ln2Second));
  r = add(r, { high: -k * ln2Third, low: 0 });
  let sum = one;
  for (let term = exponentialTerms; term > 0; term--) {
    sum = add(one, divide(multiply(r, sum), { high: term, low: 0 }));
  }
  const half = k >> 1;
  return sum.high * powerOfTwo(half) * powerOfTwo(k - half);
}

/** ln x = k ln 2 + 2 artanh((m - 1) / (m + 1)) for x = 2^k m with m from sqrt(1/2) to sqrt(2). */
function logarithm(x: number): DoubleDouble {
  const subnormal = x < 2.2250738585072014e-308;
  float[0] = subnormal ? x * 18014398509481984 : x; // 2^54
  let k = Number(words[0]! >> 52n) - 1023 - (subnormal ? 54 : 0);
  words[0] = (words[0]! & 0x000fffffffffffffn) | 0x3ff0000000000000n;
  let m = float[0]!;
  if (m > Math.SQRT2) {
    m /= 2;
    k += 1;
  }
  const s = divide({ high: m - 1, low: 0 }, twoSum(m, 1));
  const square = multiply(s, s);
  let sum: DoubleDouble = { high: 0, low: 0 };
  for (let term = logarithmTerms; term >= 0; term--) {
    sum = add(multiply(square, sum), divide(one, { high: 2 * term + 1, low: 0 }));
  }
  const fraction = multiply({ high: 2 * s.high, low: 2 * s.low }, sum);
  const whole = add(
    { high: k * ln2First, low: 0 },
    add(twoProduct(k, ln2Second), { high: k * ln2Third, low: 0 }),
  );
  return add(whole, fraction);
}

/** 2^k for k from -1022 to 1023. */
function powerOfTwo(k: number): number {
  words[0] = BigInt(k + 1023) << 52n;
  return float[0]!;
}

// pi / 2 in four parts (Cody and Waite); the first three have 33 bits, so that a product with n < 2^20 is exact.
const halfPiFirst = 1.5707963267341256;
const halfPiSecond = 6.077100506303966e-11;
const halfPiThird = 2.0222662487111665e-21;
const halfPiFourth = 8.4784276603689e-32;
const reciprocalHalfPi = 0.6366197723675814;
const largestAngle = 2 ** 20;

/**
 * Sine of an angle in radians.
 * @throws RangeError beyond 2^20
 */
export function sin64(x: number): number {
  if (!Number.isFinite(x)) return Number.NaN;
  if (x === 0) return x;
  const { quadrant, rest } = reduced(x);
  const value = quadrant & 1 ? cosineKernel(rest) : sineKernel(rest);
  return quadrant & 2 ? -value : value;
}

/**
 * Cosine of an angle in radians.
 * @throws RangeError beyond 2^20
 */
export function cos64(x: number): number {
  if (!Number.isFinite(x)) return Number.NaN;
  const { quadrant, rest } = reduced(x);
  const value = quadrant & 1 ? sineKernel(rest) : cosineKernel(rest);
  return (quadrant + 1) & 2 ? -value : value;
}

/** x = n pi / 2 + rest with |rest| up to about pi / 4; `quadrant` is n. */
function reduced(x: number): { quadrant: number; rest: DoubleDouble } {
  if (Math.abs(x) > largestAngle) {
    throw new RangeError(`Cannot reduce the angle ${x}: want a magnitude of at most ${largestAngle}`);
  }
  const n = Math.floor(x * reciprocalHalfPi + 0.5);
  if (n === 0) return { quadrant: 0, rest: { high: x, low: 0 } };
  let rest = twoSum(x - n * halfPiFirst, -n * halfPiSecond);
  rest = add(rest, { high: -n * halfPiThird, low: -n * halfPiFourth });
  return { quadrant: n, rest };
}

/** Taylor's series to the 19th power. */
function sineKernel({ high: r, low }: DoubleDouble): number {
  const z = r * r;
  let p = -1 / 121645100408832000;
  p = p * z + 1 / 355687428096000;
  p = p * z - 1 / 1307674368000;
  p = p * z + 1 / 6227020800;
  p = p * z - 1 / 39916800;
  p = p * z + 1 / 362880;
  p = p * z - 1 / 5040;
  p = p * z + 1 / 120;
  p = p * z - 1 / 6;
  return r + (r * z * p + low * (1 - z / 2));
}

/** Taylor's series to the 20th power; what 1 - z / 2 loses by rounding is added back. */
function cosineKernel({ high: r, low }: DoubleDouble): number {
  const z = r * r;
  let p = 1 / 2432902008176640000;
  p = p * z - 1 / 6402373705728000;
  p = p * z + 1 / 20922789888000;
  p = p * z - 1 / 87178291200;
  p = p * z + 1 / 479001600;
  p = p * z - 1 / 3628800;
  p = p * z + 1 / 40320;
  p = p * z - 1 / 720;
  p = p * z + 1 / 24;
  const halved = z / 2;
  const near = 1 - halved;
  return near + (1 - near - halved + (z * z * p - r * low));
}
