// Attention of one row and head by one block of threads of a chain. Scores (a thread a position), their maximum,
// exponentials, then weighted values (a thread an element and block of 128 positions); keys and values come straight to
// registers, many at once.
#pragma once
#include "attention-params.cuh"

// Asks for what a head attends to, to be in the second-level cache by the time it is read. What comes may still be
// written then: nothing is read here.
template <class E> __device__ __forceinline__ void prefetchHead(const AttentionParams &p, int head) {
#if __CUDA_ARCH__ >= 900
  typedef typename E::Stored Stored;
  const volatile int *place = p.positions;
  const int headDim = (int)p.headDim, capacity = (int)p.capacity, count = min(place[1] + 1, capacity);
  const i64 plane = (i64)place[0] * p.kvHeads + head / (int)(p.heads / p.kvHeads);
  const char *keys = (const char *)((const Stored *)p.keys + plane * headDim * capacity);
  const char *values = (const char *)((const Stored *)p.values + plane * headDim * capacity);
  constexpr int line = 128;
  const int keyLines = (count * (int)sizeof(Stored) + line - 1) / line;
  for (int e = threadIdx.x; e < headDim * keyLines; e += blockDim.x)
    prefetchLine(keys + (i64)(e / keyLines) * capacity * (int)sizeof(Stored) + e % keyLines * line);
  for (int at = threadIdx.x * line; at < count * headDim * (int)sizeof(Stored); at += blockDim.x * line)
    prefetchLine(values + at);
#endif
}

template <class E> __device__ __forceinline__ void attendHead(const AttentionParams &p, int head, float *shared) {
  typedef typename E::Stored Stored;
  constexpr int batch = 16; // loads on their way
  const int tid = threadIdx.x, groups = blockDim.x / blockInputs, group = tid / blockInputs, lane = tid % blockInputs;
  const int headDim = (int)p.headDim, capacity = (int)p.capacity;
  const int blocksOfCache = (capacity + blockInputs - 1) / blockInputs;
  float *query = shared;                              // [headDim], to a multiple of 4
  float *maxima = query + (headDim + 3) / 4 * 4;      // [32]
  float *scores = maxima + 32;                        // [blocks of the cache][128]
  float *partial = scores + blocksOfCache * blockInputs; // [blocks of the cache][headDim + 1], the last one of e alone
  const i64 plane = (i64)p.positions[0] * p.kvHeads + head / (int)(p.heads / p.kvHeads);
  const int count = min(p.positions[1] + 1, capacity), blocks = (count + blockInputs - 1) / blockInputs;
  const Stored *keys = (const Stored *)p.keys + plane * headDim * capacity;
  const Stored *values = (const Stored *)p.values + plane * headDim * capacity;
  for (int i = tid; i < headDim; i += blockDim.x) query[i] = p.query[head * headDim + i];
  __syncthreads();

  float highest = -__uint_as_float(0x7f800000u);
  for (int block = group; block < blocks; block += groups) {
    const int position = block * blockInputs + lane;
    if (position >= count) continue;
    const Stored *key = keys + position;
    float dot = 0.0f;
    for (int from = 0; from < headDim; from += blockInputs) {
      const int end = min(headDim, from + blockInputs);
      float acc = 0.0f;
      int i = from;
      for (; i + batch <= end; i += batch) {
        Stored k[batch];
#pragma unroll
        for (int j = 0; j < batch; j++) k[j] = key[(i + j) * capacity];
#pragma unroll
        for (int j = 0; j < batch; j++) acc = acc + query[i + j] * widen<E>(k[j]);
      }
      for (; i < end; i++) acc = acc + query[i] * widen<E>(key[i * capacity]);
      dot = dot + acc;
    }
    const float score = dot * (float)p.scale;
    scores[position] = score;
    highest = score > highest ? score : highest;
  }
  // A score that is NaN makes every output NaN whatever the maximum is.
  highest = blockMaximum(highest, maxima);
  for (int block = group; block < blocks; block += groups) {
    const int position = block * blockInputs + lane;
    if (position < count) scores[position] = exp32(scores[position] - highest);
  }
  __syncthreads();

  for (int block = group; block < blocks; block += groups) {
    const int from = block * blockInputs, length = min(count - from, blockInputs);
    const float *weights = scores + from;
    // The last lane adds the weights: up to a head dimension of 127 it has no column.
    for (int i = lane; i < headDim; i += blockInputs) {
      const Stored *column = values + (i64)from * headDim + i;
      float acc = 0.0f;
      int position = 0;
      for (; position + batch <= length; position += batch) {
        Stored v[batch];
#pragma unroll
        for (int j = 0; j < batch; j++) v[j] = column[(position + j) * headDim];
#pragma unroll
        for (int j = 0; j < batch; j++) acc = acc + weights[position + j] * widen<E>(v[j]);
      }
      for (; position < length; position++) acc = acc + weights[position] * widen<E>(column[position * headDim]);
      partial[block * (headDim + 1) + i] = acc;
    }
    if (lane == blockInputs - 1) {
      float weight = 0.0f;
      for (int position = 0; position < length; position++) weight = weight + weights[position];
      partial[block * (headDim + 1) + headDim] = weight;
    }
  }
  __syncthreads();
  for (int i = tid; i < headDim; i += blockDim.x) {
    float y = 0.0f, denominator = 0.0f;
    for (int block = 0; block < blocks; block++) {
      y = y + partial[block * (headDim + 1) + i];
      denominator = denominator + partial[block * (headDim + 1) + headDim];
    }
    p.out[head * headDim + i] = y / denominator;
  }
}
