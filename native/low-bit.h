// Certificates of inactivity (docs/certificates.md): inputs in 16 bits, whole-number products with a low-bit copy, bounds in
// binary64. Included inside the anonymous namespace of a unit.
#pragma once

enum { groupInputs = 32, largestDirections = 64, roundedScalars = 8, mostRounded = 32767 };

// Words [at, at + 19) of an op: the copy, then where its rounded input lies.
struct LowBitCopy {
  size_t inputs, padded, outputs;
  int bits;
  bool grouped;
  size_t directions;
  int directionExponent;
  const float *records;
  size_t recordFloats;
  const uint8_t *codes, *high, *groupScales;
  size_t codeRowBytes, highRowBytes, groupRowBytes;
  const int8_t *components;
  const int16_t *basis;
  double *scalars;
  int16_t *rounded, *ofDirections;
};

static LowBitCopy lowBitCopyAt(const double *w) {
  LowBitCopy c;
  c.inputs = (size_t)w[0];
  c.padded = roundUp(c.inputs, groupInputs);
  c.outputs = (size_t)w[1];
  c.bits = (int)w[2];
  c.grouped = w[3] != 0.0;
  c.directions = (size_t)w[4];
  c.directionExponent = (int)w[5];
  c.records = pointerAt<const float>(w[6]);
  c.recordFloats = (size_t)w[7];
  c.codes = pointerAt<const uint8_t>(w[8]);
  c.codeRowBytes = (size_t)w[9];
  c.high = pointerAt<const uint8_t>(w[10]);
  c.highRowBytes = (size_t)w[11];
  c.groupScales = pointerAt<const uint8_t>(w[12]);
  c.groupRowBytes = (size_t)w[13];
  c.components = pointerAt<const int8_t>(w[14]);
  c.basis = pointerAt<const int16_t>(w[15]);
  c.scalars = pointerAt<double>(w[16]);
  c.rounded = pointerAt<int16_t>(w[17]);
  c.ofDirections = pointerAt<int16_t>(w[18]);
  return c;
}

static inline double powerOfTwo(int exponent) {
  const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
  double value;
  __builtin_memcpy(&value, &bits, 8);
  return value;
}

// floor(log2 value), and -126 for what is smaller than 2^-126.
static inline int exponentOf(double value) {
  uint64_t bits;
  __builtin_memcpy(&bits, &value, 8);
  const int exponent = (int)(bits >> 52) - 1023;
  return exponent < -126 ? -126 : exponent;
}

static inline double magnitudeOf(double value) { return value < 0.0 ? -value : value; }

static inline int16_t roundedEven(double value) {
  const double shift = 6755399441055744.0; // 1.5 * 2^52
  const double whole = (value + shift) - shift;
  const double most = mostRounded;
  return (int16_t)(whole > most ? most : whole < -most ? -most : whole);
}

// Squares of `terms` by the block rule in binary64, then the root.
template <class Term> static double normOf(size_t count, Term term) {
  double y = 0.0;
  for (size_t block = 0; block < count; block += blockInputs) {
    const size_t end = least(block + blockInputs, count);
    double acc = 0.0;
    for (size_t i = block; i < end; i++) {
      const double value = term(i);
      acc = acc + value * value;
    }
    y = y + acc;
  }
  return __builtin_sqrt(y);
}

// Sum of products in blocks that 32 bits hold; every partial sum is whole, so any order gives it.
static int64_t wholeProduct(const int16_t *a, const int16_t *b, size_t count, size_t inBlock) {
  int64_t sum = 0;
  for (size_t begin = 0; begin < count; begin += inBlock) {
    const size_t end = least(begin + inBlock, count);
    int32_t part = 0;
    for (size_t i = begin; i < end; i++) part += (int32_t)a[i] * (int32_t)b[i];
    sum += part;
  }
  return sum;
}

static void roundOneInput(const LowBitCopy &c, const float *x, size_t t) {
  double scalars[roundedScalars] = {};
  int16_t *rounded = c.rounded + t * c.padded;
  int16_t *components = c.ofDirections + t * c.directions;
  uint32_t largest = 0;
  for (size_t i = 0; i < c.inputs; i++) {
    const uint32_t bits = bitsOfFloat(x[i]) & 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  __builtin_memset(rounded, 0, c.padded * sizeof *rounded);
  __builtin_memset(components, 0, c.directions * sizeof *components);
  if (largest >= 0x7f800000u) {
    scalars[7] = __builtin_inf();
  } else {
    const int exponent = exponentOf((double)floatOfBits(largest)) - 14;
    const double scale = powerOfTwo(exponent), inverse = powerOfTwo(-exponent);
    for (size_t i = 0; i < c.inputs; i++) rounded[i] = roundedEven((double)x[i] * inverse);
    const double inflation = 1.0 + (double)(c.inputs + 4) * powerOfTwo(-52);
    const double xNorm = normOf(c.inputs, [=](size_t i) { return (double)x[i]; }) * inflation;
    const double missedNorm =
        normOf(c.inputs, [=](size_t i) { return (double)x[i] - (double)rounded[i] * scale; }) * inflation;
    const double terms = (double)(blockInputs + (c.inputs + blockInputs - 1) / blockInputs + 2);
    const double gamma = (terms * powerOfTwo(-24)) / (1.0 - terms * powerOfTwo(-24));
    scalars[0] = scale;
    scalars[2] = gamma * xNorm + missedNorm;
    scalars[6] = (double)c.inputs * powerOfTwo(-149);
    scalars[7] = xNorm;
    if (c.directions == 0) {
      scalars[3] = __builtin_sqrt((double)wholeProduct(rounded, rounded, c.inputs, 1)) * scale * inflation;
    } else {
      double exact[largestDirections], largestExact = 0.0;
      for (size_t j = 0; j < c.directions; j++) {
        exact[j] = (double)wholeProduct(c.basis + j * c.padded, rounded, c.padded, 8);
        const double magnitude = magnitudeOf(exact[j]);
        if (magnitude > largestExact) largestExact = magnitude;
      }
      int bits = exponentOf(largestExact) - 14;
      if (bits < 0) bits = 0;
      const double shift = powerOfTwo(bits), back = powerOfTwo(-bits);
      const double unit = scale * powerOfTwo(-c.directionExponent);
      double squares = 0.0, missedSquares = 0.0;
      for (size_t j = 0; j < c.directions; j++) {
        components[j] = roundedEven(exact[j] * back);
        const double value = (double)components[j];
        const double rest = exact[j] - value * shift;
        squares += value * value;
        missedSquares = missedSquares + rest * rest;
      }
      const double inflationOfComponents = 1.0 + (double)(largestDirections + 4) * powerOfTwo(-52);
      const double componentScale = unit * shift;
      scalars[1] = componentScale;
      scalars[4] = __builtin_sqrt(squares) * componentScale * inflationOfComponents;
      scalars[5] = __builtin_sqrt(missedSquares) * unit * inflationOfComponents;
      const double two = powerOfTwo(2 * c.directionExponent);
      double y = 0.0;
      for (size_t block = 0; block < c.inputs; block += blockInputs) {
        const size_t count = least(blockInputs, c.inputs - block);
        double inside[blockInputs] = {}; // whole, below 2^53
        for (size_t j = 0; j < c.directions; j++) {
          const int16_t *direction = c.basis + j * c.padded + block;
          const double component = (double)components[j];
          for (size_t i = 0; i < count; i++) inside[i] += (double)direction[i] * component;
        }
        double acc = 0.0;
        for (size_t i = 0; i < count; i++) {
          const double outside = (double)rounded[block + i] * two - inside[i] * shift;
          acc = acc + outside * outside;
        }
        y = y + acc;
      }
      scalars[3] = __builtin_sqrt(y) * (unit * powerOfTwo(-c.directionExponent)) * inflation;
    }
  }
  __builtin_memcpy((uint8_t *)c.scalars + t * sizeof scalars, scalars, sizeof scalars);
}

static void roundInput(const double *w, uint32_t *counter) {
  const size_t rows = (size_t)w[1];
  const float *x = pointerAt<const float>(w[2]);
  const LowBitCopy c = lowBitCopyAt(w + 3);
  for (size_t t; (t = takeItem(counter)) < rows;) roundOneInput(c, x + t * c.inputs, t);
}

static inline uint64_t eightBytes(const uint8_t *from) {
  uint64_t bytes;
  __builtin_memcpy(&bytes, from, 8);
  return bytes;
}

#if defined(__AVX2__)
// 32 codes of a group in fewer than 8 bits; see packCodes of src/checkpoint/low-bit-layout.ts.
template <int bits> static inline void unpackGroup(const uint8_t *low, const uint8_t *high, int8_t *codes) {
  const __m128i nibbles = _mm_loadu_si128((const __m128i *)low);
  const __m256i both = _mm256_set_m128i(_mm_srli_epi16(nibbles, 4), nibbles);
  __m256i u = _mm256_and_si256(both, _mm256_set1_epi8(15));
  if (bits == 5) {
    uint32_t word;
    __builtin_memcpy(&word, high, 4);
    const __m256i bytes = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3,
                                           3, 3, 3, 3, 3);
    const __m256i own = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)word), bytes), own);
    u = _mm256_or_si256(u, _mm256_and_si256(_mm256_cmpeq_epi8(spread, own), _mm256_set1_epi8(16)));
  }
  if (bits == 6) {
    const __m256i word = _mm256_set1_epi64x((long long)eightBytes(high));
    const __m256i two = _mm256_and_si256(_mm256_srlv_epi64(word, _mm256_setr_epi64x(0, 2, 4, 6)), _mm256_set1_epi8(3));
    u = _mm256_or_si256(u, _mm256_slli_epi16(two, 4));
  }
  _mm256_storeu_si256((__m256i *)codes, _mm256_sub_epi8(u, _mm256_set1_epi8(1 << (bits - 1))));
}
#else
// 16 in byte j where bit j is set.
static inline uint64_t spreadBits(uint8_t bits) {
  const uint64_t own = (bits * 0x0101010101010101u) & 0x8040201008040201u;
  return ((own + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 3;
}

// 32 codes of a group in fewer than 8 bits, eight to a word; see packCodes of src/checkpoint/low-bit-layout.ts.
template <int bits> static inline void unpackGroup(const uint8_t *low, const uint8_t *high, int8_t *codes) {
  const uint64_t ones = 0x0101010101010101u;
  uint64_t part[4] = {eightBytes(low), eightBytes(low + 8), 0, 0};
  for (int p = 0; p < 2; p++) {
    part[2 + p] = (part[p] >> 4) & (15 * ones);
    part[p] &= 15 * ones;
  }
  if (bits == 5)
    for (int p = 0; p < 4; p++) part[p] |= spreadBits(high[p]);
  if (bits == 6)
    for (int p = 0; p < 4; p++) part[p] |= ((eightBytes(high) >> (2 * p)) & (3 * ones)) << 4;
  // Bytes stay apart: the top bit lends what a byte below the offset lacks.
  for (int p = 0; p < 4; p++) part[p] = ((part[p] | 128 * ones) - (uint64_t)(1 << (bits - 1)) * ones) ^ 128 * ones;
  __builtin_memcpy(codes, part, sizeof part);
}
#endif

template <int bits> static void unpackRow(const LowBitCopy &c, size_t neuron, int8_t *codes) {
  const uint8_t *low = c.codes + neuron * c.codeRowBytes, *high = c.high + neuron * c.highRowBytes;
  for (size_t at = 0; at < c.padded; at += groupInputs, low += 16, high += (bits - 4) * 4)
    unpackGroup<bits>(low, high, codes + at);
}

#include "whole-products.h"

static bool isInactive(const LowBitCopy &c, size_t t, size_t neuron, int64_t product, float biasOfNeuron,
                       double threshold) {
  double scalars[roundedScalars];
  __builtin_memcpy(scalars, (const uint8_t *)c.scalars + t * sizeof scalars, sizeof scalars);
  const float *record = c.records + neuron * c.recordFloats;
  const double weights = (double)record[1], bias = (double)biasOfNeuron;
  const double s = scalars[0] * (double)record[0] * (double)product;
  double margin = scalars[6] + scalars[2] * weights + scalars[3] * (double)record[2];
  double along = 0.0;
  if (c.directions != 0) {
    const int8_t *a = c.components + neuron * c.directions;
    const int16_t *p = c.ofDirections + t * c.directions;
    int32_t inside = 0;
    for (size_t j = 0; j < c.directions; j++) inside += (int32_t)a[j] * (int32_t)p[j];
    along = scalars[1] * (double)record[3] * (double)inside;
    margin = margin + scalars[4] * (double)record[4] + scalars[5] * (double)record[5];
  }
  const double magnitude = magnitudeOf(s) + magnitudeOf(along) + magnitudeOf(bias) + margin;
  const double bound = s + along + bias + margin + powerOfTwo(-40) * magnitude;
  return scalars[7] * weights < powerOfTwo(126) && bound < threshold;
}

enum { neuronsAtOnce = 16 };

static void certify(const double *w, uint32_t *counter, Scratch scratch) {
  const size_t rows = (size_t)w[1];
  const LowBitCopy c = lowBitCopyAt(w + 2);
  const float *bias = pointerAt<const float>(w[21]);
  const double threshold = (double)(float)w[22];
  float *out = pointerAt<float>(w[23]);
  int8_t *room = (int8_t *)scratch.panel; // the codes of a row; a copy has at most 65,536 inputs
  for (size_t item; (item = takeItem(counter)) * neuronsAtOnce < c.outputs;) {
    const size_t end = least((item + 1) * neuronsAtOnce, c.outputs);
    for (size_t n = item * neuronsAtOnce; n < end; n++) {
      const int8_t *codes = (const int8_t *)c.codes + n * c.codeRowBytes;
      if (c.bits != 8) {
        if (c.bits == 6) unpackRow<6>(c, n, room);
        if (c.bits == 5) unpackRow<5>(c, n, room);
        if (c.bits == 4) unpackRow<4>(c, n, room);
        codes = room;
      }
      const uint8_t *scales = c.groupScales + n * c.groupRowBytes;
      for (size_t t = 0; t < rows; t++) {
        const int16_t *x = c.rounded + t * c.padded;
        const int64_t product =
            c.grouped ? groupedProduct(codes, scales, x, c.padded) : plainProduct(codes, x, c.padded);
        const float one = bias ? bias[n] : 0.0f;
        out[t * c.outputs + n] = isInactive(c, t, n, product, one, threshold) ? 0.0f : 1.0f;
      }
    }
  }
}
