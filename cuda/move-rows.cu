// Copies many small pieces out of mapped host memory in one launch, beside kernels that compute: small blocks of threads,
// without shared memory, so that those keep their places on the multiprocessors.
#include "numbers.cuh"

constexpr int moveThreads = 64;
// 5,120 bytes of a warp are on their way at once: with 128 warps more than a link of 55 GB/s holds.
constexpr int moveBatch = 10;

template <class Word>
__device__ __forceinline__ void moveWords(void *target, const void *source, i64 byteLength, int lane) {
  const Word *from = (const Word *)source;
  Word *to = (Word *)target;
  const i64 count = byteLength / (i64)sizeof(Word);
  for (i64 first = lane; first < count; first += 32 * moveBatch) {
    Word words[moveBatch];
#pragma unroll
    for (int i = 0; i < moveBatch; i++)
      if (first + 32 * i < count) words[i] = from[first + 32 * i];
#pragma unroll
    for (int i = 0; i < moveBatch; i++)
      if (first + 32 * i < count) to[first + 32 * i] = words[i];
  }
}

// By one warp.
__device__ __forceinline__ void moveBytes(u64 target, u64 source, i64 byteLength, int lane) {
  const u64 bits = target | source | (u64)byteLength;
  if (bits % 16 == 0) moveWords<uint4>((void *)target, (const void *)source, byteLength, lane);
  else if (bits % 4 == 0) moveWords<u32>((void *)target, (const void *)source, byteLength, lane);
  else moveWords<unsigned char>((void *)target, (const void *)source, byteLength, lane);
}

struct MoveRunsParams {
  const u64 *runs; // [count] of source, target, byte length
  i64 count;
};

extern "C" __global__ void __launch_bounds__(moveThreads) move_runs(const MoveRunsParams p) {
  enterKernel();
  const int warps = gridDim.x * moveThreads / 32, lane = threadIdx.x % 32;
  for (i64 at = blockIdx.x * (moveThreads / 32) + threadIdx.x / 32; at < p.count; at += warps) {
    const u64 *run = p.runs + 3 * at;
    moveBytes(run[1], run[0], (i64)run[2], lane);
  }
}

struct GuessRowsParams {
  const u32 *set;
  i64 neurons;
  i64 places;
  u32 *placeOf; // [neurons]
  void *held; // row = place
  const void *matrix; // row = neuron
  i64 rowBytes;
  u32 *guessed;
};

// One block of threads makes the index, the others bring the rows.
extern "C" __global__ void __launch_bounds__(moveThreads) guess_rows(const GuessRowsParams p) {
  enterKernel();
  const int count = (int)min((i64)p.set[0], p.places);
  if (blockIdx.x == 0) {
    for (i64 neuron = threadIdx.x; neuron < p.neurons; neuron += moveThreads) p.placeOf[neuron] = 0;
    __syncthreads();
    for (int at = threadIdx.x; at < count; at += moveThreads) p.placeOf[p.set[1 + at]] = at + 1;
    if (threadIdx.x == 0) p.guessed[0] = count;
    return;
  }
  const int warps = (gridDim.x - 1) * moveThreads / 32, lane = threadIdx.x % 32;
  for (int at = (blockIdx.x - 1) * (moveThreads / 32) + threadIdx.x / 32; at < count; at += warps)
    moveBytes((u64)p.held + at * p.rowBytes, (u64)p.matrix + p.set[1 + at] * p.rowBytes, p.rowBytes, lane);
}
