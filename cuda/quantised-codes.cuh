// Quantised weights as they are stored, and what they are in binary32.
#pragma once
#include "numbers.cuh"

__device__ __forceinline__ float scaleAt(u16 stored) { return __uint_as_float((u32)stored << 16); }

// A code c is stored as u = c + 2^(bits - 1) once its top bit is flipped. A byte at bits 8 to 15 of the fraction of 1 makes
// 1 + byte * 2^-15; one fused multiply-add then gives c * scale. Both its addend and its result are exact, because a scale
// has 8 bits: nothing is rounded that the contract does not round. Conversions of integers would take twice the time.
__device__ __forceinline__ float oneAndByte(u32 word, int k, u32 oneBits) {
  return __uint_as_float(__byte_perm(word, oneBits, 0x7604 | k << 4));
}

template <int bits> struct Decoder;
template <> struct Decoder<8> {
  float factor, addend;
  __device__ __forceinline__ void set(float scale) {
    factor = scale * 32768.0f;
    addend = -(scale * 32896.0f); // 2^15 + 2^7
  }
  // The weights of a word, the first input's first.
  __device__ __forceinline__ void weights(u32 word, u32 oneBits, float (&w)[4]) const {
    const u32 bytes = word ^ 0x80808080u;
#pragma unroll
    for (int k = 0; k < 4; k++) w[k] = __fmaf_rn(oneAndByte(bytes, k, oneBits), factor, addend);
  }
};
template <> struct Decoder<4> { // even codes lie in a byte as u, odd ones as 16 u
  float evenFactor, evenAddend, oddFactor, oddAddend;
  __device__ __forceinline__ void set(float scale) {
    evenFactor = scale * 32768.0f;
    evenAddend = -(scale * 32776.0f); // 2^15 + 2^3
    oddFactor = scale * 2048.0f;
    oddAddend = -(scale * 2056.0f); // 2^11 + 2^3
  }
  __device__ __forceinline__ void weights(u32 word, u32 oneBits, float (&w)[8]) const {
    const u32 even = (word & 0x0f0f0f0fu) ^ 0x08080808u, odd = (word & 0xf0f0f0f0u) ^ 0x80808080u;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      w[2 * k] = __fmaf_rn(oneAndByte(even, k, oneBits), evenFactor, evenAddend);
      w[2 * k + 1] = __fmaf_rn(oneAndByte(odd, k, oneBits), oddFactor, oddAddend);
    }
  }
};

// The words of C adjacent columns.
template <int C> struct Words;
template <> struct Words<1> {
  u32 a;
  __device__ __forceinline__ u32 at(int) const { return a; }
};
template <> struct Words<2> {
  uint2 a;
  __device__ __forceinline__ u32 at(int c) const { return c == 0 ? a.x : a.y; }
};

// The scales of C adjacent columns.
template <int C> struct Scales;
template <> struct Scales<1> {
  u16 a;
  __device__ __forceinline__ float at(int) const { return scaleAt(a); }
};
template <> struct Scales<2> {
  u32 a;
  __device__ __forceinline__ float at(int c) const { return __uint_as_float(c == 0 ? a << 16 : a & 0xffff0000u); }
};

// As `copyAside`, of the scales of four columns: all of them or zeros.
__device__ __forceinline__ void copyScalesAside(void *shared, const u16 *source, bool taken) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(source),
               "r"(taken ? 8 : 0)
               : "memory");
#else
  *(uint2 *)shared = taken ? *(const uint2 *)source : make_uint2(0u, 0u);
#endif
}
