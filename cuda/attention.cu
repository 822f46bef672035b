// Attention of one row and head by one block of threads: scores (a thread a position), their maximum, exponentials,
// then weighted values (a thread an element and block of 128 positions), all added in the order of docs/numerics.md.
// How many positions there are is read on the device, so that a launch is the same from token to token.
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
  i64 groups; // blocks of positions that a block of threads has room for
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

#if __CUDA_ARCH__ >= 900
// Clusters of blocks of threads (9.0 and later) that read each other's shared memory.
__device__ __forceinline__ void clusterBarrier() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ u32 clusterRank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ u32 clusterSize() {
  u32 size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
__device__ __forceinline__ float remoteFloat(const float *local, u32 rank) {
  u32 address, remote;
  float value;
  asm("{ .reg .u64 shared; cvta.to.shared.u64 shared, %1; cvt.u32.u64 %0, shared; }" : "=r"(address) : "l"(local));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
  return value;
}

// `ahead` terms of a dot product, their keys all on their way before the first is used.
template <class E, int ahead>
__device__ __forceinline__ void addKeys(float &acc, const float *query, const typename E::Stored *keys, i64 stride) {
  typename E::Stored k[ahead];
#pragma unroll
  for (int j = 0; j < ahead; j++) k[j] = keys[j * stride];
#pragma unroll
  for (int j = 0; j < ahead; j++) acc = acc + query[j] * widen<E>(k[j]);
}

// One row and head by a cluster: its blocks of threads take the blocks of 128 positions in turn, so that few rows fill the
// device; the first one adds all block sums in order.
template <class E> __device__ __forceinline__ void attendCluster(const AttentionParams &p) {
  typedef typename E::Stored Stored;
  extern __shared__ float shared[];
  releaseSuccessor();
  const int tid = threadIdx.x, threads = blockDim.x;
  const int headDim = (int)p.headDim, heads = (int)p.heads;
  const i64 capacity = p.capacity;
  const float scale = (float)p.scale;
  const int rank = (int)clusterRank(), size = (int)clusterSize();
  const int item = blockIdx.x / size, t = item / heads, head = item % heads;
  // Positions come from the host alone, so they may be read before the kernel in front has ended.
  const int count = p.positions[2 * t + 1] + 1;
  const i64 plane = p.positions[2 * t] * p.kvHeads + head / (heads / p.kvHeads);
  const Stored *keys = (const Stored *)p.keys + plane * headDim * capacity;
  const Stored *values = (const Stored *)p.values + plane * headDim * capacity;
  const int blocks = (count + blockInputs - 1) / blockInputs;
  const int ownBlocks = rank < blocks ? (blocks - rank + size - 1) / size : 0;
  float *query = shared;              // [headDim]
  float *maxima = query + headDim;    // [33], the last one that of this block of threads
  float *sums = maxima + 33;          // [headDim + 1]
  float *partial = sums + headDim + 1; // [groups][headDim + 1]: this block's share of all blocks
  float *scores = partial + p.groups * (headDim + 1); // [groups][128]
  awaitPredecessor();

  const float *q = p.query + ((i64)t * heads + head) * headDim;
  for (int i = tid; i < headDim; i += threads) query[i] = q[i];
  __syncthreads();
  float highest = -__uint_as_float(0x7f800000u);
  for (int e = tid; e < ownBlocks * blockInputs; e += threads) {
    const int position = (e / blockInputs * size + rank) * blockInputs + e % blockInputs;
    if (position >= count) continue;
    float dot = 0.0f;
    for (int from = 0; from < headDim; from += blockInputs) {
      const int end = min(headDim, from + blockInputs);
      float acc = 0.0f;
      int i = from;
      for (; i + 32 <= end; i += 32) addKeys<E, 32>(acc, query + i, keys + i * capacity + position, capacity);
      if (i + 16 <= end) {
        addKeys<E, 16>(acc, query + i, keys + i * capacity + position, capacity);
        i += 16;
      }
      for (; i < end; i++) acc = acc + query[i] * widen<E>(keys[i * capacity + position]);
      dot = dot + acc;
    }
    const float score = dot * scale;
    scores[e] = score;
    highest = score > highest ? score : highest;
  }
  highest = blockMaximum(highest, maxima);
  if (tid == 0) maxima[32] = highest;
  clusterBarrier();
  for (int other = 0; other < size; other++) {
    const float value = remoteFloat(&maxima[32], other);
    highest = value > highest ? value : highest;
  }
  for (int e = tid; e < ownBlocks * blockInputs; e += threads) scores[e] = exp32(scores[e] - highest);
  __syncthreads();

  for (int chain = tid; chain < ownBlocks * headDim; chain += threads) {
    const int group = chain / headDim, i = chain % headDim;
    const int from = (group * size + rank) * blockInputs, length = min(count - from, blockInputs);
    const Stored *column = values + (i64)from * headDim + i;
    const float *weights = scores + group * blockInputs;
    float acc = 0.0f, weight = 0.0f;
    int position = 0;
    for (; position + 32 <= length; position += 32) {
      Stored v[32];
#pragma unroll
      for (int j = 0; j < 32; j++) v[j] = column[(position + j) * headDim];
#pragma unroll
      for (int j = 0; j < 32; j++) {
        const float e = weights[position + j];
        acc = acc + e * widen<E>(v[j]);
        weight = weight + e;
      }
    }
    for (; position < length; position++) {
      const float e = weights[position];
      acc = acc + e * widen<E>(column[position * headDim]);
      weight = weight + e;
    }
    partial[group * (headDim + 1) + i] = acc;
    if (i == 0) partial[group * (headDim + 1) + headDim] = weight;
  }
  clusterBarrier();
  if (rank == 0) {
    for (int i = tid; i < headDim + 1; i += threads) {
      float y = 0.0f;
#pragma unroll 4
      for (int block = 0; block < blocks; block++)
        y = y + remoteFloat(&partial[block / size * (headDim + 1) + i], block % size);
      sums[i] = y;
    }
    __syncthreads();
    for (int i = tid; i < headDim; i += threads)
      p.out[((i64)t * heads + head) * headDim + i] = sums[i] / sums[headDim];
  }
  clusterBarrier(); // until here the others' shared memory is read
}
#endif

extern "C" __global__ void __launch_bounds__(512) attention_f32(const AttentionParams p) { attend<F32>(p); }
extern "C" __global__ void __launch_bounds__(512) attention_f16(const AttentionParams p) { attend<F16>(p); }

extern "C" __global__ void __launch_bounds__(256) attention_cluster_f32(const AttentionParams p) {
#if __CUDA_ARCH__ >= 900
  attendCluster<F32>(p);
#endif
}
extern "C" __global__ void __launch_bounds__(256) attention_cluster_f16(const AttentionParams p) {
#if __CUDA_ARCH__ >= 900
  attendCluster<F16>(p);
#endif
}
