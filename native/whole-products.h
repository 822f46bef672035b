// Sums of 8-bit times 16-bit whole numbers, `count` a multiple of 32. Exact, so every unit may add in its own order.
// Included inside the anonymous namespace of a unit.
#pragma once

// Products of two neighbours stay below 2^24: 2^7 of them fit a 32-bit lane, and lanes are emptied before.
enum { exactStretch = 2048 };

#if defined(__AVX512BW__)
static inline __m512i pairProducts(const int8_t *codes, const int16_t *x) {
  return _mm512_madd_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)codes)), _mm512_loadu_si512(x));
}

static inline __m512i sumsOfPairs(__m512i v) { return _mm512_add_epi32(v, _mm512_srli_epi64(v, 32)); }

static inline int64_t total(__m512i v) { return _mm512_reduce_add_epi64(v); }

static int64_t plainProduct(const int8_t *codes, const int16_t *x, size_t count) {
  const __m512i one = _mm512_set1_epi32(1);
  __m512i sum = _mm512_setzero_si512();
  for (size_t begin = 0; begin < count; begin += exactStretch) {
    const size_t end = least(begin + exactStretch, count);
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t i = begin;
    for (; i + 64 <= end; i += 64) {
      a = _mm512_add_epi32(a, pairProducts(codes + i, x + i));
      b = _mm512_add_epi32(b, pairProducts(codes + i + 32, x + i + 32));
    }
    if (i < end) a = _mm512_add_epi32(a, pairProducts(codes + i, x + i));
    a = _mm512_add_epi32(a, b);
    sum = _mm512_add_epi64(sum, _mm512_add_epi64(_mm512_mul_epi32(a, one), _mm512_mul_epi32(_mm512_srli_epi64(a, 32), one)));
  }
  return total(sum);
}

static int64_t groupedProduct(const int8_t *codes, const uint8_t *scales, const int16_t *x, size_t count) {
  __m512i sum = _mm512_setzero_si512();
  for (size_t i = 0; i < count; i += groupInputs)
    sum = _mm512_add_epi64(
        sum, _mm512_mul_epi32(sumsOfPairs(pairProducts(codes + i, x + i)), _mm512_set1_epi32(scales[i / groupInputs])));
  return total(sum);
}

#elif defined(__AVX2__)
static inline __m256i pairProducts(const int8_t *codes, const int16_t *x) {
  return _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)codes)),
                           _mm256_loadu_si256((const __m256i *)x));
}

static inline __m256i groupProducts(const int8_t *codes, const int16_t *x) {
  return _mm256_add_epi32(pairProducts(codes, x), pairProducts(codes + 16, x + 16));
}

static inline int64_t total(__m256i v) {
  int64_t lane[4];
  _mm256_storeu_si256((__m256i *)lane, v);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

static int64_t plainProduct(const int8_t *codes, const int16_t *x, size_t count) {
  const __m256i one = _mm256_set1_epi32(1);
  __m256i sum = _mm256_setzero_si256();
  for (size_t begin = 0; begin < count; begin += exactStretch) {
    const size_t end = least(begin + exactStretch, count);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = begin; i < end; i += 32) {
      a = _mm256_add_epi32(a, pairProducts(codes + i, x + i));
      b = _mm256_add_epi32(b, pairProducts(codes + i + 16, x + i + 16));
    }
    a = _mm256_add_epi32(a, b);
    sum = _mm256_add_epi64(sum, _mm256_add_epi64(_mm256_mul_epi32(a, one), _mm256_mul_epi32(_mm256_srli_epi64(a, 32), one)));
  }
  return total(sum);
}

static int64_t groupedProduct(const int8_t *codes, const uint8_t *scales, const int16_t *x, size_t count) {
  __m256i sum = _mm256_setzero_si256();
  for (size_t i = 0; i < count; i += groupInputs) {
    __m256i v = groupProducts(codes + i, x + i);
    v = _mm256_add_epi32(v, _mm256_srli_epi64(v, 32));
    sum = _mm256_add_epi64(sum, _mm256_mul_epi32(v, _mm256_set1_epi32(scales[i / groupInputs])));
  }
  return total(sum);
}

#else
static inline int32_t groupProducts(const int8_t *codes, const int16_t *x) {
  int32_t part = 0;
  for (int i = 0; i < groupInputs; i++) part += (int32_t)codes[i] * (int32_t)x[i];
  return part;
}

static int64_t plainProduct(const int8_t *codes, const int16_t *x, size_t count) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; i += groupInputs) sum += groupProducts(codes + i, x + i);
  return sum;
}

static int64_t groupedProduct(const int8_t *codes, const uint8_t *scales, const int16_t *x, size_t count) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; i += groupInputs)
    sum += (int64_t)groupProducts(codes + i, x + i) * scales[i / groupInputs];
  return sum;
}
#endif
