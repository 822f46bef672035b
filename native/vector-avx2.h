// Eight lanes with AVX2 and F16C. Included inside the anonymous namespace of a unit.
#pragma once

enum { lanes = 8, microRows = 6 };
typedef __m256 F;
typedef int32_t I __attribute__((vector_size(32)));
typedef uint32_t U __attribute__((vector_size(32)));

static inline F splat(float value) { return _mm256_set1_ps(value); }
static inline F widen(const float *from) { return _mm256_loadu_ps(from); }
static inline void store(float *to, F value) { _mm256_storeu_ps(to, value); }

static inline F widenBits(const F16 *, __m128i bits) { return _mm256_cvtph_ps(bits); }
static inline F widenBits(const Bf16 *, __m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
static inline F widen(const F16 *from) { return widenBits(from, _mm_loadu_si128((const __m128i *)from)); }
static inline F widen(const Bf16 *from) { return widenBits(from, _mm_loadu_si128((const __m128i *)from)); }

static inline void narrow(uint16_t *to, F value) {
  _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Four elements of row r in the low lanes, of row r + 4 in the high lanes.
static inline F rowPair(const float *low, const float *high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}
template <class E> static inline F rowPair(const E *low, const E *high) {
  return widenBits(low, _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)low), _mm_loadl_epi64((const __m128i *)high)));
}

// out[k], lane r = rows[r][at + k].
template <class E> static inline void loadTransposed(const E *const *rows, size_t at, F *out) {
  const F a = rowPair(rows[0] + at, rows[4] + at), b = rowPair(rows[1] + at, rows[5] + at);
  const F c = rowPair(rows[2] + at, rows[6] + at), d = rowPair(rows[3] + at, rows[7] + at);
  const F ab = _mm256_unpacklo_ps(a, b), AB = _mm256_unpackhi_ps(a, b);
  const F cd = _mm256_unpacklo_ps(c, d), CD = _mm256_unpackhi_ps(c, d);
  out[0] = _mm256_shuffle_ps(ab, cd, 0x44);
  out[1] = _mm256_shuffle_ps(ab, cd, 0xee);
  out[2] = _mm256_shuffle_ps(AB, CD, 0x44);
  out[3] = _mm256_shuffle_ps(AB, CD, 0xee);
}

static inline void prefetchLine(const void *at) { _mm_prefetch((const char *)at, _MM_HINT_T0); }
// Into the second-level cache alone.
static inline void prefetchSoon(const void *at) { _mm_prefetch((const char *)at, _MM_HINT_T1); }
