// Norms of a row in shared memory, by the block rule.
#pragma once
#include "numbers.cuh"

// Floats from one block of 128 inputs to the next: 16-byte reads of neighbouring blocks then meet different banks.
constexpr int paddedBlock = blockInputs + 4;

__device__ __forceinline__ int paddedIndex(int i) { return i / blockInputs * paddedBlock + i % blockInputs; }

// Sums `term` over a padded row by the block rule; a thread takes whole blocks, every thread adds their sums in order. All
// threads of the block call it.
template <class Term> __device__ __forceinline__ float blockRuleSum(const float *row, float *sums, int width, Term term) {
  const int blocks = (width + blockInputs - 1) / blockInputs;
  for (int block = threadIdx.x; block < blocks; block += blockDim.x) {
    const float *from = row + block * paddedBlock;
    const int count = min(blockInputs, width - block * blockInputs);
    float acc = 0.0f;
    if (count == blockInputs) {
#pragma unroll 8
      for (int i = 0; i < blockInputs; i += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from + i);
        acc = acc + term(four.x);
        acc = acc + term(four.y);
        acc = acc + term(four.z);
        acc = acc + term(four.w);
      }
    } else {
      for (int i = 0; i < count; i++) acc = acc + term(from[i]);
    }
    sums[block] = acc;
  }
  __syncthreads();
  float y = 0.0f;
#pragma unroll 8
  for (int block = 0; block < blocks; block++) y = y + sums[block];
  __syncthreads();
  return y;
}

struct NormScale {
  float mean; // 0 for RMS
  float r;
};

// Mean and reciprocal deviation of a padded row in shared memory.
__device__ __forceinline__ NormScale normScale(const float *row, float *sums, int width, bool rms, float epsilon) {
  const float n = (float)width;
  float mean = 0.0f, spread;
  if (rms) {
    spread = blockRuleSum(row, sums, width, [](float value) { return value * value; }) / n;
  } else {
    mean = blockRuleSum(row, sums, width, [](float value) { return value; }) / n;
    spread = blockRuleSum(row, sums, width, [mean](float value) {
               const float d = value - mean;
               return d * d;
             }) / n;
  }
  return NormScale{mean, 1.0f / sqrtf(spread + epsilon)};
}

__device__ __forceinline__ float normed(float value, NormScale scale, bool rms, const float *gamma, const float *beta, int i) {
  float y = (rms ? value : value - scale.mean) * scale.r;
  if (gamma) y = y * gamma[i];
  if (beta) y = y + beta[i];
  return y;
}

// Brings `rows` rows of inputs to shared memory, padded, and zeros to the ends of blocks and for absent rows up to
// `rowsKept`: row r lies at r * rowFloats. 16 bytes a load where addresses allow it. No barrier.
__device__ __forceinline__ void loadPaddedRows(float *padded, int rowFloats, int rowsKept, const float *x, i64 stride,
                                               int rows, int count) {
  const int quads = (count + blockInputs - 1) / blockInputs * (blockInputs / 4), threads = blockDim.x;
  const bool wide = ((u64)x & 15) == 0 && stride % 4 == 0 && count % 4 == 0;
  for (int r = 0; r < rowsKept; r++) {
    const float *from = x + r * stride;
    const int present = r < rows ? count : 0;
    for (int first = threadIdx.x; first < quads; first += 4 * threads) {
      float4 four[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const int i = (first + k * threads) * 4;
        four[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (wide) {
          if (i < present) four[k] = *reinterpret_cast<const float4 *>(from + i);
        } else {
          if (i < present) four[k].x = from[i];
          if (i + 1 < present) four[k].y = from[i + 1];
          if (i + 2 < present) four[k].z = from[i + 2];
          if (i + 3 < present) four[k].w = from[i + 3];
        }
      }
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const int quad = first + k * threads;
        if (quad < quads) *reinterpret_cast<float4 *>(padded + r * rowFloats + paddedIndex(quad * 4)) = four[k];
      }
    }
  }
}
