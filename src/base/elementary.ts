/**
 * The elementary functions of the arithmetic contract in binary32: docs/numerics.md, "Elementary functions", states
 * them step by step. Only +, -, *, / rounded one by one, comparisons, integer arithmetic on bit patterns: another
 * language reproduces every bit with branch-free selects. The coefficients are minimax fits made for these ranges,
 * rounded to binary32 from the lowest degree up with the rest fitted again after each rounding.
 */

const f = Math.fround;

const float = new Float32Array(2);
const bits = new Int32Array(float.buffer);

/** Adding 1.5 * 2^23 rounds to an integer (ties to even), which then stands in the low bits of the sum. */
const roundingMagic = f(12582912);
const roundingMagicBits = 0x4b400000;

const log2e = f(Math.LOG2E);
// 0.693359375 has nine significant bits: its product with any exponent of binary32 is exact.
const ln2High = f(0.693359375);
const ln2Low = f(-2.1219444e-4);
// Beyond these bounds the result is +inf or +0 whatever the argument.
const expHighest = f(89);
const expLowest = f(-104);
const exp2 = f(0.5);
const exp3 = f(0.16666517);
const exp4 = f(0.041666392);
const exp5 = f(0.008369185);
const exp6 = f(0.0013941576);

/** e^x within 1 ulp of the exact value (docs/numerics.md says how it was checked); subnormal results kept, NaN passes. */
export function exp32(x: number): number {
  let c = Math.min(x, expHighest);
  c = Math.max(c, expLowest);
  const shifted = f(f(c * log2e) + roundingMagic);
  const n = f(shifted - roundingMagic);
  float[0] = shifted;
  const k = (bits[0]! - roundingMagicBits) | 0;
  let r = f(c - f(n * ln2High));
  r = f(r - f(n * ln2Low));
  let p = f(f(exp6 * r) + exp5);
  p = f(f(p * r) + exp4);
  p = f(f(p * r) + exp3);
  p = f(f(p * r) + exp2);
  const y = f(f(f(p * f(r * r)) + r) + 1);
  // Two factors, because 2^k itself leaves the normal numbers at both ends.
  const half = k >> 1;
  bits[0] = (half + 127) << 23;
  bits[1] = (((k - half) | 0) + 127) << 23;
  return f(f(y * float[0]!) * float[1]!);
}

const tanhSplit = f(0.75);
const tanhHighest = f(10);
const tanh0 = f(-0.33333316);
const tanh1 = f(0.13332725);
const tanh2 = f(-0.053895064);
const tanh3 = f(0.021459961);
const tanh4 = f(-0.007669529);
const tanh5 = f(0.0017440327);

/** Hyperbolic tangent within 2 ulp; odd to the bit, NaN passes. */
export function tanh32(x: number): number {
  const a = Math.abs(x);
  const z = f(a * a);
  let p = f(f(tanh5 * z) + tanh4);
  p = f(f(p * z) + tanh3);
  p = f(f(p * z) + tanh2);
  p = f(f(p * z) + tanh1);
  p = f(f(p * z) + tanh0);
  const near = f(a + f(a * f(p * z)));
  const c = Math.min(a, tanhHighest);
  const far = f(1 - f(2 / f(exp32(f(c + c)) + 1)));
  return withSign(a < tanhSplit ? near : far, x);
}

const erfHighest = f(4);
const erf0 = f(0.12837917);
const erf1 = f(-0.3761263);
const erf2 = f(0.11283618);
const erf3 = f(-0.026855126);
const erf4 = f(0.005190734);
const erf5 = f(-0.00080307614);
const erf6 = f(7.920368e-5);
const erfc0 = f(-0.00033268236);
const erfc1 = f(-1.1271225);
const erfc2 = f(-0.63809353);
const erfc3 = f(-0.103148006);
const erfc4 = f(0.02185634);
const erfc5 = f(-0.0029518884);
const erfc6 = f(0.00018677888);

/** Error function within 2 ulp; odd to the bit, NaN passes. */
export function erf32(x: number): number {
  const a = Math.abs(x);
  const z = f(a * a);
  let p = f(f(erf6 * z) + erf5);
  p = f(f(p * z) + erf4);
  p = f(f(p * z) + erf3);
  p = f(f(p * z) + erf2);
  p = f(f(p * z) + erf1);
  p = f(f(p * z) + erf0);
  const near = f(a + f(a * p));
  const c = Math.min(a, erfHighest);
  let q = f(f(erfc6 * c) + erfc5);
  q = f(f(q * c) + erfc4);
  q = f(f(q * c) + erfc3);
  q = f(f(q * c) + erfc2);
  q = f(f(q * c) + erfc1);
  q = f(f(q * c) + erfc0);
  const far = f(1 - exp32(q));
  return withSign(a < 1 ? near : far, x);
}

/** The magnitude's bits with the sign bit of `sign`; the magnitude is never negative. */
function withSign(magnitude: number, sign: number): number {
  float[0] = magnitude;
  float[1] = sign;
  bits[0] = bits[0]! | (bits[1]! & 0x80000000);
  return float[0]!;
}

/** 1 / (1 + exp32(-x)) */
export function sigmoid32(x: number): number {
  return f(1 / f(1 + exp32(-x)));
}

/** x / (1 + exp32(-x)) */
export function silu32(x: number): number {
  return f(x / f(1 + exp32(-x)));
}

const sqrtHalf = f(Math.SQRT1_2);

/** (0.5 x) * (1 + erf32(x * sqrt(1/2))) */
export function gelu32(x: number): number {
  return f(f(0.5 * x) * f(1 + erf32(f(x * sqrtHalf))));
}

const geluTanhCubic = f(0.044715);
const geluTanhScale = f(0.79788456);

/** (0.5 x) * (1 + tanh32(sqrt(2/pi) * (x + 0.044715 * ((x x) x)))) */
export function geluTanh32(x: number): number {
  const cube = f(f(x * x) * x);
  const inner = f(geluTanhScale * f(x + f(geluTanhCubic * cube)));
  return f(f(0.5 * x) * f(1 + tanh32(inner)));
}

const quickGeluScale = f(1.702);

/** x / (1 + exp32(-(1.702 x))) */
export function quickGelu32(x: number): number {
  return f(x / f(1 + exp32(-f(quickGeluScale * x))));
}
