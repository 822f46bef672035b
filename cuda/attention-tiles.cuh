// Attention of many rows: a block of threads takes 32 rows of one head, so that keys and values are read once for all of
// them. Scores are computed twice, once for their maximum and once to be weighed, which needs no room for all of them.
#pragma once
#include "load-four.cuh"

constexpr int queryRows = 32;               // of a tile
constexpr int queryPitch = queryRows + 4;   // floats from one input, or position, to the next

// Rows of neighbouring places that share a slot; others of the tile have the count 0 meanwhile.
struct RowRun {
  int begin;
  int end;
  int limit; // positions of the longest row
};

// Keys of 128 positions to shared memory, [headDim][128], widened; positions past the capacity are zeros.
template <class E>
__device__ __forceinline__ void loadKeys(float *into, const typename E::Stored *keys, int headDim, int capacity, int from, bool aligned) {
  for (int e = threadIdx.x; e < headDim * (blockInputs / 4); e += blockDim.x) {
    const int i = e / (blockInputs / 4), at = e % (blockInputs / 4) * 4;
    const int position = from + at, left = capacity - position;
    const Packed<E, 4> four = loadFour<E>(keys + (left > 0 ? (i64)i * capacity + position : 0), left, aligned);
    *reinterpret_cast<float4 *>(into + i * blockInputs + at) = make_float4(four.at(0), four.at(1), four.at(2), four.at(3));
  }
}

// Values of 128 positions to shared memory, [128][pitch], widened; positions past `limit` and columns past headDim are zeros.
template <class E>
__device__ __forceinline__ void loadValues(float *into, const typename E::Stored *values, int headDim, int limit, int from, int fours, bool aligned) {
  for (int e = threadIdx.x; e < blockInputs * fours; e += blockDim.x) {
    const int position = from + e / fours, i = e % fours * 4;
    const bool taken = position < limit;
    const Packed<E, 4> four = loadFour<E>(values + (taken ? (i64)position * headDim + i : 0), taken ? headDim - i : 0, aligned);
    *reinterpret_cast<float4 *>(into + (e / fours) * (fours * 4 + 4) + i) =
        make_float4(four.at(0), four.at(1), four.at(2), four.at(3));
  }
}

// Scores of 4 rows (of this warp) at 4 positions (this lane's, 32 apart).
__device__ __forceinline__ void scoreTile(float (&scores)[4][4], const float *query, const float *keys, int headDim, float scale) {
  const int lane = threadIdx.x % 32, firstRow = threadIdx.x / 32 * 4;
#pragma unroll
  for (int r = 0; r < 4; r++)
#pragma unroll
    for (int j = 0; j < 4; j++) scores[r][j] = 0.0f;
  for (int from = 0; from < headDim; from += blockInputs) {
    const int end = min(headDim, from + blockInputs);
    float acc[4][4] = {};
#pragma unroll 4
    for (int i = from; i < end; i++) {
      const float4 q = *reinterpret_cast<const float4 *>(query + i * queryPitch + firstRow);
      const float rows[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float key = keys[i * blockInputs + lane + 32 * j];
#pragma unroll
        for (int r = 0; r < 4; r++) acc[r][j] = acc[r][j] + rows[r] * key;
      }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int j = 0; j < 4; j++) scores[r][j] = scores[r][j] + acc[r][j];
  }
#pragma unroll
  for (int r = 0; r < 4; r++)
#pragma unroll
    for (int j = 0; j < 4; j++) scores[r][j] = scores[r][j] * scale;
}

// Weighted values of 4 rows and 4 columns over one block of positions, added to the sums before it. `lengths`: positions of
// the block that each row attends to; what lies behind them takes no part, not even as zero times it.
template <bool masked>
__device__ __forceinline__ void weighTile(float *sums, int sumPitch, const float *weights, const float *values, int pitch, const int (&lengths)[4]) {
  float acc[4][4] = {};
  const int end = max(max(lengths[0], lengths[1]), max(lengths[2], lengths[3]));
#pragma unroll 4
  for (int position = 0; position < end; position++) {
    const float4 e = *reinterpret_cast<const float4 *>(weights + position * queryPitch);
    const float4 v = *reinterpret_cast<const float4 *>(values + position * pitch);
    const float rows[4] = {e.x, e.y, e.z, e.w}, columns[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int c = 0; c < 4; c++) {
        const float next = acc[r][c] + rows[r] * columns[c];
        acc[r][c] = !masked || position < lengths[r] ? next : acc[r][c];
      }
  }
#pragma unroll
  for (int r = 0; r < 4; r++)
#pragma unroll
    for (int c = 0; c < 4; c++) sums[r * sumPitch + c] = sums[r * sumPitch + c] + acc[r][c];
}

template <class E> __device__ __forceinline__ void attendTiles(const AttentionParams &p) {
  typedef typename E::Stored Stored;
  extern __shared__ __align__(16) float shared[];
  __shared__ int slots[queryRows], counts[queryRows];
  enterKernel();
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int headDim = (int)p.headDim, heads = (int)p.heads, capacity = (int)p.capacity;
  const int fours = (headDim + 3) / 4, columns = fours * 4, pitch = columns + 4;
  const int firstRow = (int)(gridDim.y - 1 - blockIdx.y) * queryRows; // later rows first: they are the longest
  const int head = blockIdx.x, rows = (int)p.rows;
  float *query = shared;                                  // [headDim][queryPitch]
  float *weights = query + headDim * queryPitch;          // [128][queryPitch]
  float *sums = weights + blockInputs * queryPitch;       // [queryRows][columns]
  float *denominators = sums + queryRows * columns;       // [queryRows]
  float *room = denominators + queryRows;                 // keys [headDim][128], values [128][pitch]
  constexpr size_t fourBytes = 4 * sizeof(Stored);
  const bool keysAligned = capacity % 4 == 0 && (size_t)p.keys % fourBytes == 0;
  const bool valuesAligned = headDim % 4 == 0 && (size_t)p.values % fourBytes == 0;

  if (tid < queryRows) {
    const int row = firstRow + tid;
    slots[tid] = row < rows ? p.positions[2 * row] : -1;
    counts[tid] = row < rows ? min(p.positions[2 * row + 1] + 1, capacity) : 0;
    denominators[tid] = 0.0f;
  }
  for (int e = tid; e < queryRows * columns; e += blockDim.x) sums[e] = 0.0f;
  for (int e = tid; e < queryRows * headDim; e += blockDim.x) {
    const int r = e / headDim, i = e % headDim;
    query[i * queryPitch + r] = firstRow + r < rows ? p.query[((i64)(firstRow + r) * heads + head) * headDim + i] : 0.0f;
  }
  __syncthreads();

  RowRun run;
  for (run.begin = 0; run.begin < queryRows && slots[run.begin] >= 0; run.begin = run.end) {
    run.limit = 0;
    for (run.end = run.begin; run.end < queryRows && slots[run.end] == slots[run.begin]; run.end++)
      run.limit = max(run.limit, counts[run.end]);
    const i64 plane = slots[run.begin] * p.kvHeads + head / (heads / (int)p.kvHeads);
    const Stored *keys = (const Stored *)p.keys + plane * headDim * capacity;
    const Stored *values = (const Stored *)p.values + plane * headDim * capacity;
    auto countOf = [&](int row) { return row >= run.begin && row < run.end ? counts[row] : 0; };
    int own[4]; // counts of this warp's rows
    float highest[4];
#pragma unroll
    for (int r = 0; r < 4; r++) own[r] = countOf(warp * 4 + r), highest[r] = -__uint_as_float(0x7f800000u);
    const int ownMost = max(max(own[0], own[1]), max(own[2], own[3]));
    float scores[4][4];

    for (int from = 0; from < run.limit; from += blockInputs) {
      __syncthreads();
      loadKeys<E>(room, keys, headDim, capacity, from, keysAligned);
      __syncthreads();
      if (from >= ownMost) continue;
      scoreTile(scores, query, room, headDim, (float)p.scale);
#pragma unroll
      for (int r = 0; r < 4; r++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (from + lane + 32 * j < own[r] && scores[r][j] > highest[r]) highest[r] = scores[r][j];
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, highest[r], distance);
        highest[r] = other > highest[r] ? other : highest[r];
      }

    for (int from = 0; from < run.limit; from += blockInputs) {
      __syncthreads();
      loadKeys<E>(room, keys, headDim, capacity, from, keysAligned);
      __syncthreads();
      if (from < ownMost) {
        scoreTile(scores, query, room, headDim, (float)p.scale);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int position = lane + 32 * j;
          float e[4];
#pragma unroll
          for (int r = 0; r < 4; r++) e[r] = from + position < own[r] ? exp32(scores[r][j] - highest[r]) : 0.0f;
          *reinterpret_cast<float4 *>(weights + position * queryPitch + warp * 4) = make_float4(e[0], e[1], e[2], e[3]);
        }
      }
      __syncthreads();
      loadValues<E>(room, values, headDim, run.limit, from, fours, valuesAligned);
      __syncthreads();
      for (int item = tid; item < queryRows / 4 * fours; item += blockDim.x) {
        const int row = item / fours * 4, column = item % fours * 4;
        int lengths[4];
#pragma unroll
        for (int r = 0; r < 4; r++) lengths[r] = max(0, min(blockInputs, countOf(row + r) - from));
        const bool whole = min(min(lengths[0], lengths[1]), min(lengths[2], lengths[3])) == blockInputs;
        float *into = sums + row * columns + column;
        if (whole) weighTile<false>(into, columns, weights + row, room + column, pitch, lengths);
        else weighTile<true>(into, columns, weights + row, room + column, pitch, lengths);
      }
      // The last warp has no columns up to a head dimension of 112.
      if (warp == (int)blockDim.x / 32 - 1) {
        const int length = min(blockInputs, countOf(lane) - from);
        float acc = 0.0f;
#pragma unroll 8
        for (int position = 0; position < length; position++) acc = acc + weights[position * queryPitch + lane];
        denominators[lane] = denominators[lane] + acc;
      }
    }
  }
  __syncthreads();
  for (int e = tid; e < queryRows * headDim; e += blockDim.x) {
    const int r = e / headDim, i = e % headDim;
    if (firstRow + r < rows)
      p.out[((i64)(firstRow + r) * heads + head) * headDim + i] = sums[r * columns + i] / denominators[r];
  }
}
