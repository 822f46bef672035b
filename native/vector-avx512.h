// Sixteen lanes with AVX-512 F, BW, DQ, VL and F16C. Included inside the anonymous namespace of a unit.
#pragma once

enum { lanes = 16, microRows = 8 };
typedef __m512 F;
typedef int32_t I __attribute__((vector_size(64)));
typedef uint32_t U __attribute__((vector_size(64)));

static inline F splat(float value) { return _mm512_set1_ps(value); }
static inline F widen(const float *from) { return _mm512_loadu_ps(from); }
static inline void store(float *to, F value) { _mm512_storeu_ps(to, value); }

static inline F widenBits(const F16 *, __m256i bits) { return _mm512_cvtph_ps(bits); }
static inline F widenBits(const Bf16 *, __m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
static inline F widen(const F16 *from) { return widenBits(from, _mm256_loadu_si256((const __m256i *)from)); }
static inline F widen(const Bf16 *from) { return widenBits(from, _mm256_loadu_si256((const __m256i *)from)); }

static inline void narrow(uint16_t *to, F value) {
  _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Four elements each of rows r, r + 4, r + 8 and r + 12, from the low lanes up. Masked broadcasts from memory leave
// the one shuffle port of wide registers to the transposition.
static inline F rowQuad(const float *const *rows, size_t at) {
  F quad = _mm512_castps128_ps512(_mm_loadu_ps(rows[0] + at));
  quad = _mm512_mask_broadcast_f32x4(quad, 0x00f0, _mm_loadu_ps(rows[4] + at));
  quad = _mm512_mask_broadcast_f32x4(quad, 0x0f00, _mm_loadu_ps(rows[8] + at));
  return _mm512_mask_broadcast_f32x4(quad, 0xf000, _mm_loadu_ps(rows[12] + at));
}
template <class E> static inline F rowQuad(const E *const *rows, size_t at) {
  __m256i quad = _mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)(rows[0] + at)));
  quad = _mm256_mask_broadcastq_epi64(quad, 2, _mm_loadl_epi64((const __m128i *)(rows[4] + at)));
  quad = _mm256_mask_broadcastq_epi64(quad, 4, _mm_loadl_epi64((const __m128i *)(rows[8] + at)));
  return widenBits(rows[0], _mm256_mask_broadcastq_epi64(quad, 8, _mm_loadl_epi64((const __m128i *)(rows[12] + at))));
}

// out[k], lane r = rows[r][at + k].
template <class E> static inline void loadTransposed(const E *const *rows, size_t at, F *out) {
  const F a = rowQuad(rows, at), b = rowQuad(rows + 1, at), c = rowQuad(rows + 2, at), d = rowQuad(rows + 3, at);
  const F ab = _mm512_unpacklo_ps(a, b), AB = _mm512_unpackhi_ps(a, b);
  const F cd = _mm512_unpacklo_ps(c, d), CD = _mm512_unpackhi_ps(c, d);
  out[0] = _mm512_shuffle_ps(ab, cd, 0x44);
  out[1] = _mm512_shuffle_ps(ab, cd, 0xee);
  out[2] = _mm512_shuffle_ps(AB, CD, 0x44);
  out[3] = _mm512_shuffle_ps(AB, CD, 0xee);
}

static inline void prefetchLine(const void *at) { _mm_prefetch((const char *)at, _MM_HINT_T0); }
// Into the second-level cache alone.
static inline void prefetchSoon(const void *at) { _mm_prefetch((const char *)at, _MM_HINT_T1); }
