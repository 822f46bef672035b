// Attention of one row and head by a cluster of blocks of threads (9.0 and later), so that few rows fill the device. Groups
// of 128 threads take the blocks of 128 positions in turn. Keys and values come to shared memory by asynchronous copies,
// as many blocks ahead as there is room for; the first block of threads adds all block sums in order.
#pragma once
#include "cluster.cuh"
#include "numbers.cuh"

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void copyAsync(void *shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sharedAddress(shared)), "l"(global) : "memory");
}
__device__ __forceinline__ void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the latest `pending` groups of this thread's copies are there.
__device__ __forceinline__ void awaitCopies(int pending) {
  switch (pending) {
  case 0: asm volatile("cp.async.wait_group 0;" ::: "memory"); break;
  case 1: asm volatile("cp.async.wait_group 1;" ::: "memory"); break;
  case 2: asm volatile("cp.async.wait_group 2;" ::: "memory"); break;
  default: asm volatile("cp.async.wait_group 3;" ::: "memory");
  }
}
__device__ __forceinline__ void groupBarrier(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}
__device__ __forceinline__ void prefetchLine(const void *address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Asks for `byteLength` bytes from `address` on, by all threads of a group.
__device__ __forceinline__ void prefetchLines(const char *address, int byteLength, int lane) {
  for (int at = lane * 128; at < byteLength; at += blockInputs * 128) prefetchLine(address + at);
}

template <class E> struct ClusterCache {
  typedef typename E::Stored Stored;
  const Stored *keys;   // [headDim][capacity]
  const Stored *values; // [capacity][headDim]
  int headDim;
  int capacity;
  int count; // positions that are attended to
  bool aligned; // every row of keys and every plane begins and ends at a multiple of 16 bytes

  // Keys [headDim][128] of a block of positions, or values [128][headDim], by all threads of a group.
  __device__ __forceinline__ void fetch(Stored *stage, int block, bool ofKeys, int lane) const {
    constexpr int chunk = 16 / sizeof(Stored), rowChunks = blockInputs / chunk;
    const int from = block * blockInputs;
    if (aligned) {
      if (ofKeys) {
        const int taken = (min(count - from, blockInputs) + chunk - 1) / chunk;
        for (int e = lane; e < headDim * rowChunks; e += blockInputs) {
          const int i = e / rowChunks, c = e % rowChunks;
          if (c < taken) copyAsync(stage + i * blockInputs + c * chunk, keys + (i64)i * capacity + from + c * chunk);
        }
      } else {
        const int taken = (min(count - from, blockInputs) * headDim + chunk - 1) / chunk;
        const Stored *first = values + (i64)from * headDim;
        for (int e = lane; e < taken; e += blockInputs) copyAsync(stage + e * chunk, first + e * chunk);
      }
      return;
    }
    const int length = min(count - from, blockInputs);
    if (ofKeys) {
      if (lane < length)
#pragma unroll 8
        for (int i = 0; i < headDim; i++) stage[i * blockInputs + lane] = keys[(i64)i * capacity + from + lane];
    } else {
      const Stored *first = values + (i64)from * headDim;
#pragma unroll 8
      for (int e = lane; e < length * headDim; e += blockInputs) stage[e] = first[e];
    }
  }

  __device__ __forceinline__ void prefetch(int block, int lane) const {
    const int from = block * blockInputs, length = min(count - from, blockInputs);
    constexpr int lineElements = 128 / sizeof(Stored), lines = blockInputs / lineElements;
    for (int e = lane; e < headDim * lines; e += blockInputs) {
      const int at = from + e % lines * lineElements;
      if (at < count) prefetchLine(keys + (i64)(e / lines) * capacity + at);
    }
    prefetchLines((const char *)(values + (i64)from * headDim), length * headDim * (int)sizeof(Stored), lane);
  }
};

template <class E>
__device__ __forceinline__ float scoreOf(const float *query, const typename E::Stored *keys, int headDim, float scale) {
  float dot = 0.0f;
  for (int from = 0; from < headDim; from += blockInputs) {
    const int end = min(headDim, from + blockInputs);
    float acc = 0.0f;
    int i = from;
#pragma unroll 4
    for (; i + 4 <= end; i += 4) {
      const float4 q = *reinterpret_cast<const float4 *>(query + i);
      acc = acc + q.x * widen<E>(keys[i * blockInputs]);
      acc = acc + q.y * widen<E>(keys[(i + 1) * blockInputs]);
      acc = acc + q.z * widen<E>(keys[(i + 2) * blockInputs]);
      acc = acc + q.w * widen<E>(keys[(i + 3) * blockInputs]);
    }
    for (; i < end; i++) acc = acc + query[i] * widen<E>(keys[i * blockInputs]);
    dot = dot + acc;
  }
  return dot * scale;
}

struct WeightedSum {
  float acc;
  float weight;
};

// One column of a block of values; `weighs`: the sum of the weights alone as well.
template <class E, bool weighs>
__device__ __forceinline__ WeightedSum weightedSum(const float *weights, const typename E::Stored *column, int headDim, int length) {
  WeightedSum sum = {0.0f, 0.0f};
  auto add = [&](float e, int position) {
    sum.acc = sum.acc + e * widen<E>(column[position * headDim]);
    if (weighs) sum.weight = sum.weight + e;
  };
  int position = 0;
#pragma unroll 4
  for (; position + 4 <= length; position += 4) {
    const float4 e = *reinterpret_cast<const float4 *>(weights + position);
    add(e.x, position);
    add(e.y, position + 1);
    add(e.z, position + 2);
    add(e.w, position + 3);
  }
  for (; position < length; position++) add(weights[position], position);
  return sum;
}
#endif

template <class E> __device__ __forceinline__ void attendCluster(const AttentionParams &p) {
#if __CUDA_ARCH__ >= 900
  typedef typename E::Stored Stored;
  extern __shared__ float shared[];
  releaseSuccessor();
  clusterArrive(); // none writes to another's shared memory before all have begun
  const int tid = threadIdx.x, groups = blockDim.x / blockInputs, group = tid / blockInputs, lane = tid % blockInputs;
  const int headDim = (int)p.headDim, heads = (int)p.heads, stages = (int)p.stages;
  const int rank = (int)clusterRank(), size = (int)clusterSize();
  const int item = blockIdx.x / size, t = item / heads, head = item % heads;
  const int allBlocks = (int)((p.capacity + blockInputs - 1) / blockInputs);
  const int ownMost = (allBlocks + size * groups - 1) / (size * groups) * groups;
  float *query = shared;                            // [headDim], to a multiple of 4
  float *maxima = query + (headDim + 3) / 4 * 4;    // [8], by blocks of threads of the cluster
  float *warpMaxima = maxima + 8;                   // [16]
  float *scores = warpMaxima + 16;                  // [own blocks][128]
  float *stageRoom = scores + ownMost * blockInputs; // [groups][stages][headDim * 128]
  Stored *stage = (Stored *)stageRoom + (i64)group * stages * headDim * blockInputs;
  // [all blocks][headDim + 1], used in the first block of threads alone; last: the sum of e
  float *partial = (float *)((Stored *)stageRoom + (i64)groups * stages * headDim * blockInputs);

  ClusterCache<E> cache;
  cache.headDim = headDim;
  cache.capacity = (int)p.capacity;
  cache.aligned = cache.capacity % (16 / (int)sizeof(Stored)) == 0 && (((size_t)p.keys | (size_t)p.values) & 15) == 0;
  int blocks, own;
  auto find = [&]() {
    const volatile int *place = p.positions + 2 * t;
    const i64 plane = place[0] * p.kvHeads + head / (heads / (int)p.kvHeads);
    cache.count = min(place[1] + 1, cache.capacity);
    cache.keys = (const Stored *)p.keys + plane * headDim * p.capacity;
    cache.values = (const Stored *)p.values + plane * headDim * p.capacity;
    blocks = (cache.count + blockInputs - 1) / blockInputs;
    const int first = group * size + rank;
    own = first < blocks ? (blocks - first + size * groups - 1) / (size * groups) : 0;
  };
  auto blockOf = [&](int j) { return (j * groups + group) * size + rank; };
  if (p.prefetch) {
    // Only asked for, not read: what comes may be written until the kernel in front has ended.
    find();
    for (int j = 0; j < own; j++) cache.prefetch(blockOf(j), lane);
  }
  awaitPredecessor();
  find();
  auto fetch = [&](int s) {
    if (s < 2 * own) {
      const bool ofKeys = s < own;
      cache.fetch(stage + (s % stages) * headDim * blockInputs, blockOf(ofKeys ? s : s - own), ofKeys, lane);
    }
    commitCopies();
  };
  for (int s = 0; s < stages; s++) fetch(s);
  const float *q = p.query + ((i64)t * heads + head) * headDim;
  for (int i = tid; i < headDim; i += blockDim.x) query[i] = q[i];
  __syncthreads();

  float highest = -__uint_as_float(0x7f800000u);
  for (int s = 0; s < own; s++) {
    awaitCopies(stages - 1);
    groupBarrier(group);
    if (blockOf(s) * blockInputs + lane < cache.count) {
      const float score = scoreOf<E>(query, stage + (s % stages) * headDim * blockInputs + lane, headDim, (float)p.scale);
      scores[(s * groups + group) * blockInputs + lane] = score;
      highest = score > highest ? score : highest;
    }
    if (s + stages < 2 * own) groupBarrier(group); // all have used what is written over
    fetch(s + stages);
  }
  // A score that is NaN makes every output NaN whatever the maximum is.
  highest = blockMaximum(highest, warpMaxima);
  clusterWait();
  if (tid < size) storeRemote(maxima + rank, tid, highest);
  clusterArrive();
  clusterWait();
  for (int other = 0; other < size; other++) highest = maxima[other] > highest ? maxima[other] : highest;

  for (int j = 0; j < own; j++) {
    float *score = scores + (j * groups + group) * blockInputs + lane;
    if (blockOf(j) * blockInputs + lane < cache.count) *score = exp32(*score - highest);
  }
  for (int s = own; s < 2 * own; s++) {
    awaitCopies(stages - 1);
    groupBarrier(group);
    const int j = s - own, block = blockOf(j), length = min(cache.count - block * blockInputs, blockInputs);
    const float *weights = scores + (j * groups + group) * blockInputs;
    const Stored *values = stage + (s % stages) * headDim * blockInputs;
    float *sums = partial + block * (headDim + 1);
    // The last warp adds the weights: up to a head dimension of 96 it has no columns.
    const bool weighs = lane >= 96;
    for (int i = lane; i < headDim || (weighs && i < blockInputs); i += blockInputs) {
      const Stored *column = values + min(i, headDim - 1);
      const bool last = weighs && i < blockInputs;
      const WeightedSum sum = last ? weightedSum<E, true>(weights, column, headDim, length)
                                   : weightedSum<E, false>(weights, column, headDim, length);
      if (i < headDim) storeRemote(sums + i, 0, sum.acc);
      if (last && i == blockInputs - 1) storeRemote(sums + headDim, 0, sum.weight);
    }
    if (s + stages < 2 * own) groupBarrier(group);
    fetch(s + stages);
  }
  clusterArrive();
  clusterWait();
  if (rank > 0) return;
  for (int i = tid; i < headDim; i += blockDim.x) {
    float y = 0.0f, denominator = 0.0f;
#pragma unroll 4
    for (int block = 0; block < blocks; block++) {
      y = y + partial[block * (headDim + 1) + i];
      denominator = denominator + partial[block * (headDim + 1) + headDim];
    }
    p.out[((i64)t * heads + head) * headDim + i] = y / denominator;
  }
#endif
}
