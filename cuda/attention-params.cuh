// What all kernels of attention share.
#pragma once
#include "numbers.cuh"

struct AttentionParams {
  i64 rows;
  i64 heads;
  const int *positions;
  f64 scale;
  const float *query;
  const void *keys;
  const void *values;
  i64 kvHeads;
  i64 headDim;
  i64 capacity;
  float *scratch; // [blocks, capacity] where scores do not fit shared memory, else null
  float *out;
  i64 groups;   // blocks of positions that a block of threads has room for at once
  i64 stages;   // of clusters: blocks of keys or values that 128 threads have room for
  i64 prefetch; // of clusters: 1 to ask for keys and values before the kernel in front has ended
};

__device__ __forceinline__ float blockMaximum(float value, float *shared) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int w = 1; w < (int)blockDim.x / 32; w++) value = shared[w] > value ? shared[w] : value;
  return value;
}
