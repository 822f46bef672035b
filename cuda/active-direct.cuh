#pragma once
#include "active-set.cuh"
#include "row-places.cuh"

struct ActiveDirectParams {
  i64 rows;
  const float *x; // [rows, width]
  i64 width;
  u32 *active; // the set itself, written by one more block of threads than the columns need
  const void *matrix; // row = neuron
  i64 rowStride;
  i64 outputs;
  float *out;
  i64 continues;
  const float *bias;
  const float *residual;
  i64 blocksPerRound;
  u32 *flagged; // a set whose words hold flags of its neurons so far: one more block of threads makes it; 0 for none
  i64 flaggedWidth;
};

// As active inputs, for a set that is all of x: each group of lanes finds the active neurons of its block of 128 by itself,
// so nothing waits for the list. A lane reads C weights of a row, 16 bytes where rows are aligned; a group's share of a row
// is then 128 bytes, the most that one request over the link asks for. `batch` rows are on their way at once.
template <class E, int R, int lanes, int C, int batch, class Places>
__device__ __forceinline__ void activeColumns(const ActiveDirectParams &p, const Places &places) {
  typedef typename E::Stored Stored;
  constexpr int columns = lanes * C, quads = blockInputs / 4 / lanes; // of inputs, a lane
  extern __shared__ __align__(16) float shared[];
  const int rows = (int)p.rows, width = (int)p.width, outputs = (int)p.outputs;
  const int groups = blockDim.x / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  const int blocks = (width + blockInputs - 1) / blockInputs, blocksPerRound = (int)p.blocksPerRound;
  const int firstColumn = blockIdx.x * columns, column = firstColumn + lane * C;
  const bool inside = column + C <= outputs;
  const bool wide = ((u64)p.x & 15) == 0 && width % 4 == 0;
  const Stored *matrix = (const Stored *)p.matrix;
  float *own = shared + group * R * blockInputs;          // [R][128] inputs of this group
  int *counts = (int *)(shared + groups * R * blockInputs); // [blocks] of active neurons
  float *partial = (float *)(counts + blocks);            // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns;   // [R][columns]

  for (int begin = 0; begin < blocks; begin += blocksPerRound) {
    const int end = min(blocks, begin + blocksPerRound);
    for (int base = begin; base < end; base += groups) {
      const int block = base + group, from = block * blockInputs;
      const bool taken = block < end;
      __syncwarp(); // the turn before has been read
      // Bit i of low and high: input i and 64 + i of the block are active.
      u64 low = 0, high = 0;
#pragma unroll
      for (int r = 0; r < R; r++) {
        float4 values[quads];
#pragma unroll
        for (int k = 0; k < quads; k++) {
          const int i = from + (k * lanes + lane) * 4;
          const float *x = p.x + (i64)r * width + i;
          values[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (taken && r < rows) {
            if (wide) {
              if (i < width) values[k] = *reinterpret_cast<const float4 *>(x);
            } else {
              if (i < width) values[k].x = x[0];
              if (i + 1 < width) values[k].y = x[1];
              if (i + 2 < width) values[k].z = x[2];
              if (i + 3 < width) values[k].w = x[3];
            }
          }
        }
#pragma unroll
        for (int k = 0; k < quads; k++) {
          const float4 four = values[k];
          const int quad = k * lanes + lane;
          *reinterpret_cast<float4 *>(own + r * blockInputs + quad * 4) = four;
          const u32 bits = (four.x != 0.0f ? 1u : 0u) | (four.y != 0.0f ? 2u : 0u) | (four.z != 0.0f ? 4u : 0u) |
                           (four.w != 0.0f ? 8u : 0u); // true for NaN
          if (quad < 16) low |= (u64)bits << (quad * 4);
          else high |= (u64)bits << (quad * 4 - 64);
        }
      }
#pragma unroll
      for (int distance = 1; distance < lanes; distance *= 2) {
        low |= __shfl_xor_sync(0xffffffffu, low, distance);
        high |= __shfl_xor_sync(0xffffffffu, high, distance);
      }
      __syncwarp();
      const int count = __popcll(low) + __popcll(high);
      if (taken && lane == 0) counts[block] = count;
      float acc[R][C];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
      const Stored *weights = matrix + (i64)from * p.rowStride + column;
      auto load = [&](int at, u32 word) {
        return loadPacked<E, C>(places.lies(word) ? places.place(word, column) : weights + at * p.rowStride);
      };
      for (int first = 0; first < count; first += batch) {
        Packed<E, C> w[batch];
        int at[batch];
        u32 words[batch];
#pragma unroll
        for (int i = 0; i < batch; i++) {
          at[i] = low != 0 ? __ffsll((long long)low) - 1 : high != 0 ? 63 + __ffsll((long long)high) : -1;
          if (low != 0) low &= low - 1;
          else high &= high - 1;
          words[i] = at[i] >= 0 ? places.word(from + at[i]) : 0;
          if (!Places::keeps && at[i] >= 0 && inside) w[i] = load(at[i], words[i]);
        }
        // All words are on their way before the first load that waits for one.
        if constexpr (Places::keeps) {
#pragma unroll
          for (int i = 0; i < batch; i++)
            if (at[i] >= 0 && inside) w[i] = load(at[i], words[i]);
        }
#pragma unroll
        for (int i = 0; i < batch; i++) {
          if (at[i] < 0) continue;
          if (inside && places.fresh(words[i])) *reinterpret_cast<Packed<E, C> *>(places.place(words[i], column)) = w[i];
#pragma unroll
          for (int c = 0; c < C; c++) {
            float weight = 0.0f;
            if (inside) weight = w[i].at(c);
            else if (column + c < outputs) {
              const bool lies = places.lies(words[i]);
              const Stored stored = lies ? places.place(words[i], column)[c] : weights[at[i] * p.rowStride + c];
              if (places.fresh(words[i])) places.place(words[i], column)[c] = stored;
              weight = widen<E>(stored);
            }
#pragma unroll
            for (int r = 0; r < R; r++) acc[r][c] = acc[r][c] + own[r * blockInputs + at[i]] * weight;
          }
        }
      }
      if (taken && count > 0) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int c = 0; c < C; c++) partial[((block - begin) * R + r) * columns + lane * C + c] = acc[r][c];
      }
    }
    __syncthreads();
    for (int o = threadIdx.x; o < R * columns; o += blockDim.x) {
      const int r = o / columns, target = firstColumn + o % columns;
      if (r >= rows || target >= outputs) continue;
      const i64 at = (i64)r * outputs + target;
      // Asked for before the sum, which they wait behind.
      const float bias = p.bias ? p.bias[target] : 0.0f, residual = p.residual ? p.residual[at] : 0.0f;
      float y = begin > 0 ? sums[o] : p.continues ? p.out[at] : 0.0f;
#pragma unroll 16
      for (int block = begin; block < end; block++)
        if (counts[block] > 0) y = y + partial[(block - begin) * R * columns + o];
      if (end < blocks) {
        sums[o] = y;
        continue;
      }
      if (p.bias) y = y + bias;
      if (p.residual) y = y + residual;
      p.out[at] = y;
    }
    if (end < blocks) __syncthreads();
  }
}

// Rows that lie by neuron; the set is made beside the product.
template <class E, int R, int lanes, int C> __device__ __forceinline__ void activeDirect(const ActiveDirectParams &p) {
  extern __shared__ __align__(16) float shared[];
  enterKernel();
  if (blockIdx.x + 1 == gridDim.x) {
    compactColumns(p.x, (int)p.rows, (int)p.width, p.active, (u32 *)shared);
    return;
  }
  if (p.flagged && blockIdx.x + 2 == gridDim.x) {
    compactColumns((const float *)(p.flagged + 1), 1, (int)p.flaggedWidth, p.flagged, (u32 *)shared);
    return;
  }
  activeColumns<E, R, lanes, C, R == 1 ? 8 : 4>(p, RowsByNeuron<E>());
}
