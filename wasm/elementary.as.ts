// src/base/elementary.ts four lanes at a time: the same operations in the same order, selects in place of branches.

// @ts-ignore: decorator
@inline
function splat(value: f32): v128 {
  return f32x4.splat(value);
}

// @ts-ignore: decorator
@inline
function select(mask: v128, whereTrue: v128, whereFalse: v128): v128 {
  return v128.bitselect(whereTrue, whereFalse, mask);
}

/** p * x + c, rounded twice. */
// @ts-ignore: decorator
@inline
function step(p: v128, x: v128, c: f32): v128 {
  return f32x4.add(f32x4.mul(p, x), splat(c));
}

/** The magnitude's bits with the sign bit of `sign`; the magnitude is never negative. */
// @ts-ignore: decorator
@inline
function withSign(magnitude: v128, sign: v128): v128 {
  return v128.or(magnitude, v128.and(sign, i32x4.splat(0x80000000)));
}

export function exp4(x: v128): v128 {
  let c = select(f32x4.gt(x, splat(89)), splat(89), x);
  c = select(f32x4.lt(c, splat(-104)), splat(-104), c);
  const shifted = f32x4.add(f32x4.mul(c, splat(1.44269504)), splat(12582912));
  const n = f32x4.sub(shifted, splat(12582912));
  const k = i32x4.sub(shifted, i32x4.splat(0x4b400000));
  let r = f32x4.sub(c, f32x4.mul(n, splat(0.693359375)));
  r = f32x4.sub(r, f32x4.mul(n, splat(-2.1219444e-4)));
  let p = step(splat(0.0013941576), r, 0.008369185);
  p = step(p, r, 0.041666392);
  p = step(p, r, 0.16666517);
  p = step(p, r, 0.5);
  const y = f32x4.add(f32x4.add(f32x4.mul(p, f32x4.mul(r, r)), r), splat(1));
  const half = i32x4.shr_s(k, 1);
  const first = i32x4.shl(i32x4.add(half, i32x4.splat(127)), 23);
  const second = i32x4.shl(i32x4.add(i32x4.sub(k, half), i32x4.splat(127)), 23);
  return f32x4.mul(f32x4.mul(y, first), second);
}

function tanh4(x: v128): v128 {
  const a = f32x4.abs(x);
  const z = f32x4.mul(a, a);
  let p = step(splat(0.0017440327), z, -0.007669529);
  p = step(p, z, 0.021459961);
  p = step(p, z, -0.053895064);
  p = step(p, z, 0.13332725);
  p = step(p, z, -0.33333316);
  const near = f32x4.add(a, f32x4.mul(a, f32x4.mul(p, z)));
  const c = select(f32x4.gt(a, splat(10)), splat(10), a);
  const far = f32x4.sub(splat(1), f32x4.div(splat(2), f32x4.add(exp4(f32x4.add(c, c)), splat(1))));
  return withSign(select(f32x4.lt(a, splat(0.75)), near, far), x);
}

function erf4(x: v128): v128 {
  const a = f32x4.abs(x);
  const z = f32x4.mul(a, a);
  let p = step(splat(7.920368e-5), z, -0.00080307614);
  p = step(p, z, 0.005190734);
  p = step(p, z, -0.026855126);
  p = step(p, z, 0.11283618);
  p = step(p, z, -0.3761263);
  p = step(p, z, 0.12837917);
  const near = f32x4.add(a, f32x4.mul(a, p));
  const c = select(f32x4.gt(a, splat(4)), splat(4), a);
  let q = step(splat(0.00018677888), c, -0.0029518884);
  q = step(q, c, 0.02185634);
  q = step(q, c, -0.103148006);
  q = step(q, c, -0.63809353);
  q = step(q, c, -1.1271225);
  q = step(q, c, -0.00033268236);
  const far = f32x4.sub(splat(1), exp4(q));
  return withSign(select(f32x4.lt(a, splat(1)), near, far), x);
}

/** 1 + exp(-x) */
// @ts-ignore: decorator
@inline
function onePlusExp(x: v128): v128 {
  return f32x4.add(splat(1), exp4(f32x4.neg(x)));
}

/** Applies activation `kind` (program.ts, activationCodes) to four numbers; a zero result is +0. */
export function activate4(kind: i32, threshold: f32, x: v128): v128 {
  const y = activation(kind, threshold, x);
  return v128.andnot(y, f32x4.eq(y, splat(0)));
}

function activation(kind: i32, threshold: f32, x: v128): v128 {
  if (kind <= 2) {
    const limit: f32 = kind == 2 ? threshold : 0;
    const positive = v128.andnot(x, f32x4.le(x, splat(limit))); // a NaN is not <= and stays
    return kind == 1 ? f32x4.mul(positive, positive) : positive;
  }
  switch (kind) {
    case 3:
      return f32x4.div(x, onePlusExp(x));
    case 4:
      return f32x4.mul(
        f32x4.mul(splat(0.5), x),
        f32x4.add(splat(1), erf4(f32x4.mul(x, splat(0.70710678)))),
      );
    case 5: {
      const cube = f32x4.mul(f32x4.mul(x, x), x);
      const inner = f32x4.mul(
        splat(0.79788456),
        f32x4.add(x, f32x4.mul(splat(0.044715), cube)),
      );
      return f32x4.mul(f32x4.mul(splat(0.5), x), f32x4.add(splat(1), tanh4(inner)));
    }
    case 6:
      return f32x4.div(x, onePlusExp(f32x4.mul(splat(1.702), x)));
    case 7:
      return f32x4.div(splat(1), onePlusExp(x));
    case 8:
      return tanh4(x);
    default:
      return x;
  }
}
