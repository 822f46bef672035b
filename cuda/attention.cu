// Attention in three shapes, all adding in the order of docs/numerics.md: one row and head by one block of threads (here),
// by a cluster of them (few rows), and tiles of rows (many). Scores (a thread a position), their maximum, exponentials, then
// weighted values (a thread an element and block of 128 positions). How many positions there are is read on the device, so
// that a launch is the same from token to token.
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

template <class E> __device__ __forceinline__ void attend(const AttentionParams &p) {
  typedef typename E::Stored Stored;
  extern __shared__ float shared[];
  enterKernel();
  const int tid = threadIdx.x, threads = blockDim.x;
  const int headDim = (int)p.headDim, heads = (int)p.heads, groups = (int)p.groups;
  const i64 capacity = p.capacity;
  const float scale = (float)p.scale;
  float *query = shared;                          // [headDim]
  float *maxima = query + headDim;                // [32]
  float *partial = maxima + 32;                   // [groups][headDim + 1], the last one of e alone
  float *sums = partial + groups * (headDim + 1); // [headDim + 1]
  float *scores = p.scratch ? p.scratch + blockIdx.x * capacity : sums + headDim + 1; // [positions]

  for (i64 item = blockIdx.x; item < p.rows * heads; item += gridDim.x) {
    // Later rows first: they are the longest.
    const i64 t = p.rows - 1 - item / heads, head = item % heads;
    const int count = p.positions[2 * t + 1] + 1;
    const i64 plane = p.positions[2 * t] * p.kvHeads + head / (heads / p.kvHeads);
    const Stored *keys = (const Stored *)p.keys + plane * headDim * capacity;
    const Stored *values = (const Stored *)p.values + plane * headDim * capacity;
    const float *q = p.query + (t * heads + head) * headDim;
    for (int i = tid; i < headDim; i += threads) query[i] = q[i];
    for (int i = tid; i < headDim + 1; i += threads) sums[i] = 0.0f;
    __syncthreads();

    float highest = -__uint_as_float(0x7f800000u);
    for (int position = tid; position < count; position += threads) {
      float dot = 0.0f;
      for (int from = 0; from < headDim; from += blockInputs) {
        const int end = min(headDim, from + blockInputs);
        float acc = 0.0f;
#pragma unroll 16
        for (int i = from; i < end; i++) acc = acc + query[i] * widen<E>(keys[i * capacity + position]);
        dot = dot + acc;
      }
      const float score = dot * scale;
      scores[position] = score;
      highest = score > highest ? score : highest;
    }
    // A score that is NaN makes every output NaN whatever the maximum is.
    highest = blockMaximum(highest, maxima);
    for (int position = tid; position < count; position += threads)
      scores[position] = exp32(scores[position] - highest);
    __syncthreads();

    const int blocks = (count + blockInputs - 1) / blockInputs;
    for (int begin = 0; begin < blocks; begin += groups) {
      const int now = min(groups, blocks - begin);
      for (int chain = tid; chain < now * headDim; chain += threads) {
        const int group = chain / headDim, i = chain % headDim;
        const int from = (begin + group) * blockInputs, end = min(count, from + blockInputs);
        float acc = 0.0f, weight = 0.0f;
        const Stored *column = values + i;
#pragma unroll 16
        for (int position = from; position < end; position++) {
          const float e = scores[position];
          acc = acc + e * widen<E>(column[(i64)position * headDim]);
          weight = weight + e;
        }
        partial[group * (headDim + 1) + i] = acc;
        if (i == 0) partial[group * (headDim + 1) + headDim] = weight;
      }
      __syncthreads();
      for (int i = tid; i < headDim + 1; i += threads) {
        float y = sums[i];
        for (int group = 0; group < now; group++) y = y + partial[group * (headDim + 1) + i];
        sums[i] = y;
      }
      __syncthreads();
    }
    for (int i = tid; i < headDim; i += threads) p.out[(t * heads + head) * headDim + i] = sums[i] / sums[headDim];
    __syncthreads();
  }
}

#include "attention-cluster.cuh"
#include "attention-tiles.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) attention_f32(const AttentionParams p) { attend<F32>(p); }
extern "C" __global__ void __launch_bounds__(512, 1) attention_f16(const AttentionParams p) { attend<F16>(p); }

extern "C" __global__ void __launch_bounds__(512, 1) attention_cluster_f32(const AttentionParams p) { attendCluster<F32>(p); }
extern "C" __global__ void __launch_bounds__(512, 1) attention_cluster_f16(const AttentionParams p) { attendCluster<F16>(p); }

extern "C" __global__ void __launch_bounds__(256) attention_tiles_f32(const AttentionParams p) { attendTiles<F32>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_tiles_f16(const AttentionParams p) { attendTiles<F16>(p); }
