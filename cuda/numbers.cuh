// Scalars of docs/numerics.md: storage types, activations and the elementary functions, bit for bit as
// src/base/elementary.ts. The compiler must be told --fmad=false -prec-div=true -prec-sqrt=true -ftz=false; then
// + - * / and sqrtf round once each. Nothing is included, so that the run-time compiler needs no header folder.
#pragma once

typedef long long i64;
typedef double f64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

// Inputs of one block of the summation rule.
constexpr int blockInputs = 128;

struct F32 {
  typedef float Stored;
};
struct F16 {
  typedef u16 Stored;
};
struct Bf16 {
  typedef u16 Stored;
};

template <class E> __device__ __forceinline__ float widen(typename E::Stored stored);
template <> __device__ __forceinline__ float widen<F32>(float stored) { return stored; }
template <> __device__ __forceinline__ float widen<F16>(u16 stored) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
  return value;
}
template <> __device__ __forceinline__ float widen<Bf16>(u16 stored) { return __uint_as_float((u32)stored << 16); }

// The low (0) or high (1) of two stored halves: for binary16 one instruction that picks its half itself.
template <class E> __device__ __forceinline__ float widenHalf(u32 pair, int half) {
  return widen<E>((u16)(half == 0 ? pair : pair >> 16));
}
template <> __device__ __forceinline__ float widenHalf<F16>(u32 pair, int half) {
  float value;
  if (half == 0) asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(pair));
  else asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(value) : "r"(pair));
  return value;
}

// Nearest, ties to even, subnormals kept.
__device__ __forceinline__ u16 narrowF16(float value) {
  u16 stored;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
  return stored;
}

// C adjacent stored elements as one load, kept as they are until they are used: a batch of loads then costs few registers.
template <class E, int C> struct Packed;
template <> struct Packed<F32, 1> {
  float a;
  __device__ __forceinline__ float at(int) const { return a; }
};
template <> struct Packed<F32, 2> {
  float2 a;
  __device__ __forceinline__ float at(int c) const { return c == 0 ? a.x : a.y; }
};
template <> struct Packed<F32, 4> {
  float4 a;
  __device__ __forceinline__ float at(int c) const { return c == 0 ? a.x : c == 1 ? a.y : c == 2 ? a.z : a.w; }
};
template <class E> struct Packed<E, 1> {
  u16 a;
  __device__ __forceinline__ float at(int) const { return widen<E>(a); }
};
template <class E> struct Packed<E, 2> {
  u32 a;
  __device__ __forceinline__ float at(int c) const { return widenHalf<E>(a, c); }
};
template <class E> struct Packed<E, 4> {
  uint2 a;
  __device__ __forceinline__ float at(int c) const {
    const u32 half = c < 2 ? a.x : a.y;
    return widenHalf<E>(half, c & 1);
  }
};

template <class E> struct Packed<E, 8> {
  uint4 a;
  __device__ __forceinline__ float at(int c) const {
    const u32 half = c < 2 ? a.x : c < 4 ? a.y : c < 6 ? a.z : a.w;
    return widenHalf<E>(half, c & 1);
  }
};

template <class E, int C> __device__ __forceinline__ Packed<E, C> loadPacked(const typename E::Stored *from) {
  return *reinterpret_cast<const Packed<E, C> *>(from);
}

__device__ __forceinline__ float exp32(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  const float shifted = c * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const int k = (int)((u32)__float_as_int(shifted) - 0x4b400000u);
  float r = c - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 0.0013941576f * r + 0.008369185f;
  p = p * r + 0.041666392f;
  p = p * r + 0.16666517f;
  p = p * r + 0.5f;
  const float y = (p * (r * r) + r) + 1.0f;
  const int half = k >> 1;
  const float first = __uint_as_float(((u32)half + 127u) << 23);
  const float second = __uint_as_float(((u32)k - (u32)half + 127u) << 23);
  return (y * first) * second;
}

__device__ __forceinline__ float magnitudeOf(float x) { return __uint_as_float(__float_as_uint(x) & 0x7fffffffu); }
__device__ __forceinline__ float withSign(float magnitude, float sign) {
  return __uint_as_float(__float_as_uint(magnitude) | (__float_as_uint(sign) & 0x80000000u));
}
__device__ __forceinline__ float negated(float x) { return __uint_as_float(__float_as_uint(x) ^ 0x80000000u); }

__device__ __forceinline__ float tanh32(float x) {
  const float a = magnitudeOf(x), z = a * a;
  float p = 0.0017440327f * z + -0.007669529f;
  p = p * z + 0.021459961f;
  p = p * z + -0.053895064f;
  p = p * z + 0.13332725f;
  p = p * z + -0.33333316f;
  const float near = a + a * (p * z);
  const float c = a > 10.0f ? 10.0f : a;
  const float far = 1.0f - 2.0f / (exp32(c + c) + 1.0f);
  return withSign(a < 0.75f ? near : far, x);
}

__device__ __forceinline__ float erf32(float x) {
  const float a = magnitudeOf(x), z = a * a;
  float p = 7.920368e-5f * z + -0.00080307614f;
  p = p * z + 0.005190734f;
  p = p * z + -0.026855126f;
  p = p * z + 0.11283618f;
  p = p * z + -0.3761263f;
  p = p * z + 0.12837917f;
  const float near = a + a * p;
  const float c = a > 4.0f ? 4.0f : a;
  float q = 0.00018677888f * c + -0.0029518884f;
  q = q * c + 0.02185634f;
  q = q * c + -0.103148006f;
  q = q * c + -0.63809353f;
  q = q * c + -1.1271225f;
  q = q * c + -0.00033268236f;
  const float far = 1.0f - exp32(q);
  return withSign(a < 1.0f ? near : far, x);
}

// Numbers of the activations; src/backend/cuda/parameters.ts names the same ones. -1: none.
enum {
  activationRelu,
  activationRelu2,
  activationFatrelu,
  activationSilu,
  activationGelu,
  activationGeluTanh,
  activationQuickGelu,
  activationSigmoid,
  activationTanh,
  activationIdentity
};

__device__ __noinline__ float smoothActivation(int code, float x) {
  switch (code) {
  case activationSilu: return x / (1.0f + exp32(negated(x)));
  case activationGelu: return (0.5f * x) * (1.0f + erf32(x * 0.70710678f));
  case activationGeluTanh: {
    const float cube = (x * x) * x;
    const float inner = 0.79788456f * (x + 0.044715f * cube);
    return (0.5f * x) * (1.0f + tanh32(inner));
  }
  case activationQuickGelu: {
    const float u = 1.702f * x;
    return x / (1.0f + exp32(negated(u)));
  }
  case activationSigmoid: return 1.0f / (1.0f + exp32(negated(x)));
  case activationTanh: return tanh32(x);
  default: return x;
  }
}

// The activations that a product applies to its own result: those without a call, which would cost it registers. Zeros
// of a result become positive.
__device__ __forceinline__ float thresholded(int code, float x, float threshold) {
  const float y = x <= threshold ? 0.0f : x;
  return (code == activationRelu2 ? y * y : y) + 0.0f;
}

__device__ __forceinline__ float activated(int code, float x, float threshold) {
  if (code == activationRelu || code == activationRelu2) return thresholded(code, x, 0.0f);
  if (code == activationFatrelu) return thresholded(code, x, threshold);
  return smoothActivation(code, x) + 0.0f;
}

// What an op found wrong, for the host to read: words of mapped host memory, one an op of the submission.
enum { failureKvOverflow = 1, failureIndexOutOfRange = 2 };

__device__ __forceinline__ void fail(u32 *status, u32 code) { *(volatile u32 *)status = code; }

// Programmatic dependent launch (9.0 and later): a kernel lets its successor start at once, and waits itself for its
// predecessor before it touches anything that another kernel writes. Until then it may fetch weights, which none writes.
__device__ __forceinline__ void releaseSuccessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void awaitPredecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Both at the beginning, for kernels that have nothing to fetch before.
__device__ __forceinline__ void enterKernel() {
  releaseSuccessor();
  awaitPredecessor();
}

// The largest finite binary16 is 65504; from 65520 on rounding gives infinity.
template <class E> __device__ __forceinline__ typename E::Stored narrowKv(float value, u32 *status);
template <> __device__ __forceinline__ float narrowKv<F32>(float value, u32 *) { return value; }
template <> __device__ __forceinline__ u16 narrowKv<F16>(float value, u32 *status) {
  const float size = magnitudeOf(value);
  if (size >= 65520.0f && size < __uint_as_float(0x7f800000u)) fail(status, failureKvOverflow);
  return narrowF16(value);
}
