// exp, tanh, erf and what is made of them: docs/numerics.md, "Elementary functions", lane by lane. Included inside the
// anonymous namespace of a unit.
#pragma once

static inline F horner(F p, F z, float next) { return p * z + splat(next); }

static inline F exp32(F x) {
  const F highest = splat(89.0f), lowest = splat(-104.0f), magic = splat(12582912.0f);
  F c = select(x > highest, highest, x);
  c = select(c < lowest, lowest, c);
  const F shifted = c * splat(1.44269504f) + magic;
  const F n = shifted - magic;
  const I k = (I)((U)shifted - 0x4b400000u);
  F r = c - n * splat(0.693359375f);
  r = r - n * splat(-2.12194440e-4f);
  F p = horner(splat(0.0013941576f), r, 0.008369185f);
  p = horner(p, r, 0.041666392f);
  p = horner(p, r, 0.16666517f);
  p = horner(p, r, 0.5f);
  const F y = (p * (r * r) + r) + splat(1.0f);
  const I half = k >> 1;
  const U first = ((U)half + 127u) << 23;
  const U second = ((U)k - (U)half + 127u) << 23;
  return (y * (F)first) * (F)second;
}

static inline F magnitudeOf(F x) { return (F)((U)x & 0x7fffffffu); }
static inline F withSign(F magnitude, F sign) { return (F)((U)magnitude | ((U)sign & 0x80000000u)); }
static inline F negated(F x) { return (F)((U)x ^ 0x80000000u); }

static inline F tanh32(F x) {
  const F a = magnitudeOf(x), z = a * a;
  F p = horner(splat(0.0017440327f), z, -0.007669529f);
  p = horner(p, z, 0.021459961f);
  p = horner(p, z, -0.053895064f);
  p = horner(p, z, 0.13332725f);
  p = horner(p, z, -0.33333316f);
  const F near = a + a * (p * z);
  const F highest = splat(10.0f);
  const F c = select(a > highest, highest, a);
  const F far = splat(1.0f) - splat(2.0f) / (exp32(c + c) + splat(1.0f));
  return withSign(select(a < splat(0.75f), near, far), x);
}

static inline F erf32(F x) {
  const F a = magnitudeOf(x), z = a * a;
  F p = horner(splat(7.920368e-5f), z, -0.00080307614f);
  p = horner(p, z, 0.005190734f);
  p = horner(p, z, -0.026855126f);
  p = horner(p, z, 0.11283618f);
  p = horner(p, z, -0.3761263f);
  p = horner(p, z, 0.12837917f);
  const F near = a + a * p;
  const F highest = splat(4.0f);
  const F c = select(a > highest, highest, a);
  F q = horner(splat(0.00018677888f), c, -0.0029518884f);
  q = horner(q, c, 0.02185634f);
  q = horner(q, c, -0.103148006f);
  q = horner(q, c, -0.63809353f);
  q = horner(q, c, -1.1271225f);
  q = horner(q, c, -0.00033268236f);
  const F far = splat(1.0f) - exp32(q);
  return withSign(select(a < splat(1.0f), near, far), x);
}

static inline F oneAndExp(F x) { return splat(1.0f) + exp32(negated(x)); }

static inline F gelu32(F x) {
  return (splat(0.5f) * x) * (splat(1.0f) + erf32(x * splat(0.70710678f)));
}

static inline F geluTanh32(F x) {
  const F cube = (x * x) * x;
  const F inner = splat(0.79788456f) * (x + splat(0.044715f) * cube);
  return (splat(0.5f) * x) * (splat(1.0f) + tanh32(inner));
}

template <int code> static inline F activated(F x, float threshold) {
  switch (code) {
  case activationRelu:
    return select(x <= zero(), zero(), x);
  case activationRelu2: {
    const F positive = select(x <= zero(), zero(), x);
    return positive * positive;
  }
  case activationFatrelu:
    return select(x <= splat(threshold), zero(), x);
  case activationSilu:
    return x / oneAndExp(x);
  case activationGelu:
    return gelu32(x);
  case activationGeluTanh:
    return geluTanh32(x);
  case activationQuickGelu:
    return x / oneAndExp(splat(1.702f) * x);
  case activationSigmoid:
    return splat(1.0f) / oneAndExp(x);
  case activationTanh:
    return tanh32(x);
  default:
    return x;
  }
}
