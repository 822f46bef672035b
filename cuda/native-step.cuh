// Rounding and the step of `native` numerics on tensor cores, which all its kernels share.
#pragma once
#include "numbers.cuh"

constexpr int padding = 8; // halves: rows of shared memory begin at different banks
constexpr u32 activationOverflow = 3;

#if __CUDA_ARCH__ >= 800

template <class E> __device__ __forceinline__ u32 roundedPair(float low, float high);
template <> __device__ __forceinline__ u32 roundedPair<F16>(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <> __device__ __forceinline__ u32 roundedPair<Bf16>(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Whether rounding makes a finite number infinite.
template <class E> __device__ __forceinline__ bool overflows(float x);
template <> __device__ __forceinline__ bool overflows<F16>(float x) {
  const float a = magnitudeOf(x);
  return a >= 65520.0f && a <= 3.40282347e38f;
}
template <> __device__ __forceinline__ bool overflows<Bf16>(float x) {
  const u32 a = __float_as_uint(x) & 0x7fffffffu;
  return a >= 0x7f7f8000u && a < 0x7f800000u;
}

template <class E> __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <> __device__ __forceinline__ void multiply<F16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void multiply<Bf16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of 16-bit elements out of shared memory; each lane names the start of one row.
template <bool transposed> __device__ __forceinline__ void loadMatrices(u32 (&to)[4], const u16 *row) {
  const u32 at = (u32)__cvta_generic_to_shared(row);
  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

// Eight stored elements, zeros past `count`.
__device__ __forceinline__ uint4 loadEight(const u16 *from, int count, bool aligned) {
  if (count >= 8 && aligned) return *reinterpret_cast<const uint4 *>(from);
  u32 words[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u32 low = 2 * i < count ? from[2 * i] : 0u, high = 2 * i + 1 < count ? from[2 * i + 1] : 0u;
    words[i] = low | high << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Two of them, side by side in the 16 rows that lanes 0 to 15 name.
__device__ __forceinline__ void loadHalfTransposed(u32 (&to)[4], const u16 *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"((u32)__cvta_generic_to_shared(row))
               : "memory");
}

#endif
