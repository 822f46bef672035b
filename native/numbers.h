// Stored number types and their exact scalar conversions. Included inside the anonymous namespace of a unit.
#pragma once

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

static inline float floatOfBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

static inline uint32_t bitsOfFloat(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

static inline float widenOne(const float *from) { return *from; }

static inline float widenOne(const Bf16 *from) { return floatOfBits((uint32_t)from->bits << 16); }

// Subnormals become normal by letting the hardware subtract the implied bit; no subnormal operand is ever met.
static inline float widenOne(const F16 *from) {
  const uint32_t sign = (uint32_t)(from->bits & 0x8000u) << 16;
  const uint32_t magnitude = (uint32_t)(from->bits & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  uint32_t bits = magnitude + 0x38000000u;
  if (exponent == 0x0f800000u) bits += 0x38000000u;
  if (exponent == 0) bits = bitsOfFloat(floatOfBits(bits + 0x00800000u) - floatOfBits(0x38800000u));
  return floatOfBits(bits | sign);
}

// Round to nearest even, once; NaN stays NaN, what does not fit becomes infinity.
static inline uint16_t narrowOne(float value) {
  const uint32_t bits = bitsOfFloat(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); // 65520 and above
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves the sum's last bit at 2^-24, the spacing of binary16 subnormals.
    const float shifted = floatOfBits(magnitude) + 0.5f;
    return (uint16_t)(sign | (bitsOfFloat(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return (uint16_t)(sign | ((magnitude + 0xfffu + odd - 0x38000000u) >> 13));
}
