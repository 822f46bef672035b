// Four lanes on x86-64 without further extensions. Included inside the anonymous namespace of a unit.
#pragma once

enum { lanes = 4, microRows = 6 };
typedef __m128 F;
typedef int32_t I __attribute__((vector_size(16)));
typedef uint32_t U __attribute__((vector_size(16)));

static inline F splat(float value) { return _mm_set1_ps(value); }
static inline F widen(const float *from) { return _mm_loadu_ps(from); }
static inline void store(float *to, F value) { _mm_storeu_ps(to, value); }

static inline F widenHalves(__m128i low) {
  const __m128i wide = _mm_unpacklo_epi16(low, _mm_setzero_si128());
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(wide, _mm_set1_epi32(0x8000)), 16);
  const __m128i magnitude = _mm_slli_epi32(_mm_and_si128(wide, _mm_set1_epi32(0x7fff)), 13);
  const __m128i top = _mm_set1_epi32(0x0f800000);
  const __m128i exponent = _mm_and_si128(magnitude, top);
  const __m128i rebias = _mm_set1_epi32(0x38000000);
  __m128i bits = _mm_add_epi32(magnitude, rebias);
  bits = _mm_add_epi32(bits, _mm_and_si128(_mm_cmpeq_epi32(exponent, top), rebias));
  const __m128i tiny = _mm_cmpeq_epi32(exponent, _mm_setzero_si128());
  const __m128 shifted = _mm_sub_ps(_mm_castsi128_ps(_mm_add_epi32(bits, _mm_set1_epi32(0x00800000))),
                                    _mm_castsi128_ps(_mm_set1_epi32(0x38800000)));
  bits = _mm_or_si128(_mm_and_si128(tiny, _mm_castps_si128(shifted)), _mm_andnot_si128(tiny, bits));
  return _mm_castsi128_ps(_mm_or_si128(bits, sign));
}

static inline F widen(const F16 *from) { return widenHalves(_mm_loadl_epi64((const __m128i *)from)); }
static inline F widen(const Bf16 *from) {
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)from)));
}

static inline void narrow(uint16_t *to, F value) {
  float lane[lanes];
  store(lane, value);
  for (int i = 0; i < lanes; i++) to[i] = narrowOne(lane[i]);
}

// out[k], lane r = rows[r][at + k].
template <class E> static inline void loadTransposed(const E *const *rows, size_t at, F *out) {
  const F a = widen(rows[0] + at), b = widen(rows[1] + at), c = widen(rows[2] + at), d = widen(rows[3] + at);
  const F ab = _mm_unpacklo_ps(a, b), AB = _mm_unpackhi_ps(a, b);
  const F cd = _mm_unpacklo_ps(c, d), CD = _mm_unpackhi_ps(c, d);
  out[0] = _mm_movelh_ps(ab, cd);
  out[1] = _mm_movehl_ps(cd, ab);
  out[2] = _mm_movelh_ps(AB, CD);
  out[3] = _mm_movehl_ps(CD, AB);
}

static inline void prefetchLine(const void *at) { _mm_prefetch((const char *)at, _MM_HINT_T0); }
// Into the second-level cache alone.
static inline void prefetchSoon(const void *at) { _mm_prefetch((const char *)at, _MM_HINT_T1); }
