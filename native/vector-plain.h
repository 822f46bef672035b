// Four lanes in the compiler's own vector types: arm64 and everything else without a unit of its own. Included inside
// the anonymous namespace of a unit.
#pragma once

enum { lanes = 4, microRows = 8 };
typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
typedef uint32_t U __attribute__((vector_size(16)));

static inline F splat(float value) { return F{value, value, value, value}; }
static inline F widen(const float *from) {
  F value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <class E> static inline F widen(const E *from) {
  return F{widenOne(from), widenOne(from + 1), widenOne(from + 2), widenOne(from + 3)};
}
static inline void store(float *to, F value) { __builtin_memcpy(to, &value, sizeof value); }

static inline void narrow(uint16_t *to, F value) {
  for (int i = 0; i < lanes; i++) to[i] = narrowOne(value[i]);
}

// out[k], lane r = rows[r][at + k].
template <class E> static inline void loadTransposed(const E *const *rows, size_t at, F *out) {
  const F a = widen(rows[0] + at), b = widen(rows[1] + at), c = widen(rows[2] + at), d = widen(rows[3] + at);
  for (int k = 0; k < 4; k++) out[k] = F{a[k], b[k], c[k], d[k]};
}

static inline void prefetchLine(const void *at) { __builtin_prefetch(at); }
static inline void prefetchSoon(const void *at) { __builtin_prefetch(at, 0, 2); }
