// Copies that do not wait, and hints for the second-level cache.
#pragma once
#include "numbers.cuh"

// Copies 16 bytes to shared memory beside the thread, of which the last 16 - byteLength are zeros; nothing is read where
// byteLength is 0. `source` is a multiple of 16. Before 8.0 the thread does it itself.
__device__ __forceinline__ void copyAside(void *shared, const void *source, int byteLength) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(shared)),
               "l"(source), "r"(byteLength)
               : "memory");
#else
  if (byteLength == 16) {
    *(uint4 *)shared = *(const uint4 *)source;
  } else {
    for (int i = 0; i < 8; i++) ((u16 *)shared)[i] = 2 * i < byteLength ? ((const u16 *)source)[i] : (u16)0;
  }
#endif
}

// Copies 16 bytes to shared memory beside the thread.
__device__ __forceinline__ void copyWhole(void *shared, const void *source) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(source)
               : "memory");
#else
  *(uint4 *)shared = *(const uint4 *)source;
#endif
}

// Ends a group of this thread's copies; groups may be empty.
__device__ __forceinline__ void endCopyGroup() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `newest` groups of this thread are under way.
template <int newest> __device__ __forceinline__ void awaitCopyGroups() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
#endif
}

// Waits until the oldest of depth - 1 groups of copies has landed.
__device__ __forceinline__ void awaitOldest(int depth) {
  if (depth == 16) awaitCopyGroups<14>();
  else if (depth == 12) awaitCopyGroups<10>();
  else if (depth == 8) awaitCopyGroups<6>();
  else if (depth == 6) awaitCopyGroups<4>();
  else if (depth == 4) awaitCopyGroups<2>();
  else if (depth == 3) awaitCopyGroups<1>();
  else awaitCopyGroups<0>();
}

// Asks for weights to be brought into the second-level cache; every thread of the block asks for its part. Address and
// count are multiples of 16.
__device__ __forceinline__ void prefetchBytes(const void *address, i64 byteLength) {
#if __CUDA_ARCH__ >= 900
  constexpr i64 part = 2048;
  for (i64 at = threadIdx.x * part; at < byteLength; at += blockDim.x * part)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"((const char *)address + at),
                 "r"((u32)(byteLength - at < part ? byteLength - at : part)));
#endif
}
