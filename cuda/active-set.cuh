// The active set of a pass: which columns hold a value that is not zero in some row.
#pragma once
#include "numbers.cuh"

// Room in shared memory, in words.
constexpr int compactWords = 1024 + 32;
constexpr int wordsAtOnce = 8;

// One block of threads, a multiple of 32 of them: as many words of 32 columns a turn as there are threads. Ballots make
// the words, a scan gives each its place.
__device__ __forceinline__ void compactColumns(const float *x, int rows, int width, u32 *active, u32 *room) {
  u32 *words = room, *warpSums = room + 1024;
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, threads = blockDim.x, warps = threads / 32;
  u32 found = 0;
  for (int first = 0; first < width; first += threads * 32) {
    const int count = min(threads, (width - first + 31) / 32);
    // Loads of several words on their way: one block of threads has a whole row to read.
    for (int base = warp; base < count; base += wordsAtOnce * warps) {
      bool any[wordsAtOnce];
#pragma unroll
      for (int k = 0; k < wordsAtOnce; k++) any[k] = false;
      for (int t = 0; t < rows; t++)
#pragma unroll
        for (int k = 0; k < wordsAtOnce; k++) {
          const int word = base + k * warps, column = first + word * 32 + lane;
          if (word < count && column < width) any[k] |= x[(i64)t * width + column] != 0.0f; // true for NaN
        }
#pragma unroll
      for (int k = 0; k < wordsAtOnce; k++) {
        const u32 bits = __ballot_sync(0xffffffffu, any[k]);
        if (lane == 0 && base + k * warps < count) words[base + k * warps] = bits;
      }
    }
    __syncthreads();
    u32 bits = tid < count ? words[tid] : 0;
    u32 before = __popc(bits);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const u32 other = __shfl_up_sync(0xffffffffu, before, distance);
      if (lane >= distance) before += other;
    }
    if (lane == 31) warpSums[warp] = before;
    __syncthreads();
    u32 total = 0, place = found + before - __popc(bits);
    for (int w = 0; w < warps; w++) {
      if (w < warp) place += warpSums[w];
      total += warpSums[w];
    }
    while (bits != 0) {
      const int bit = __ffs(bits) - 1;
      bits &= bits - 1;
      active[1 + place++] = first + tid * 32 + bit;
    }
    found += total;
    __syncthreads();
  }
  if (tid == 0) active[0] = found;
}
