// Products over active rows of which some lie in places on the device and the others in mapped host memory. Rows that have
// got a place are written there on the way, so that nothing is moved ahead and nothing waits for the host.
#include "active-set.cuh"

constexpr u32 freshPlace = 0x80000000u; // src/backend/row-index.ts

struct HeldInputsParams {
  i64 rows;
  const float *x; // [rows, width]
  i64 width;
  u32 *active; // the set, written by one more block of threads than the columns need; 0: it is there already
  u32 *hits;   // where the set is written: how many of it have a place
  const u32 *placeOf;
  void *held; // row = place
  const void *matrix; // row = neuron
  i64 rowStride;
  i64 outputs;
  float *out;
  const float *bias;
  const float *residual;
  i64 blocksPerRound;
};

// Whether the row of a neuron with this word lies in its place.
__device__ __forceinline__ bool lies(u32 word) { return word != 0 && (word & freshPlace) == 0; }

// A set, and how many of its neurons have a place, by one block of threads.
__device__ __forceinline__ void compactHeld(const HeldInputsParams &p, u32 *room) {
  compactColumns(p.x, (int)p.rows, (int)p.width, p.active, room);
  __syncthreads();
  const u32 count = p.active[0];
  u32 own = 0;
  for (u32 at = threadIdx.x; at < count; at += blockDim.x) own += p.placeOf[p.active[1 + at]] != 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) own += __shfl_down_sync(0xffffffffu, own, distance);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  u32 all = 0;
  for (u32 warp = 0; warp < blockDim.x / 32; warp++) all += room[warp];
  p.hits[0] = all;
}

// The work and the shapes of activeDirect (active-direct.cuh), with the places of rows looked up by neuron.
template <class E, int R, int lanes, int C> __device__ __forceinline__ void heldInputs(const HeldInputsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int columns = lanes * C, quads = blockInputs / 4 / lanes; // of inputs, a lane
  constexpr int batch = R == 1 ? 8 : R == 2 ? 4 : 2; // rows on their way
  extern __shared__ __align__(16) float shared[];
  enterKernel();
  if (p.active && blockIdx.x + 1 == gridDim.x) {
    compactHeld(p, (u32 *)shared);
    return;
  }
  const int rows = (int)p.rows, width = (int)p.width, outputs = (int)p.outputs;
  const int groups = blockDim.x / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  const int blocks = (width + blockInputs - 1) / blockInputs, blocksPerRound = (int)p.blocksPerRound;
  const int firstColumn = blockIdx.x * columns, column = firstColumn + lane * C;
  const bool inside = column + C <= outputs;
  const bool wide = ((u64)p.x & 15) == 0 && width % 4 == 0;
  const Stored *matrix = (const Stored *)p.matrix;
  auto placeAt = [&](u32 word) { return (Stored *)p.held + (i64)((word & ~freshPlace) - 1) * p.rowStride + column; };
  float *own = shared + group * R * blockInputs;            // [R][128] inputs of this group
  int *counts = (int *)(shared + groups * R * blockInputs); // [blocks] of active neurons
  float *partial = (float *)(counts + blocks);              // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns;     // [R][columns]

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
      for (int first = 0; first < count; first += batch) {
        Packed<E, C> w[batch];
        int at[batch];
        u32 words[batch];
#pragma unroll
        for (int i = 0; i < batch; i++) {
          at[i] = low != 0 ? __ffsll((long long)low) - 1 : high != 0 ? 63 + __ffsll((long long)high) : -1;
          if (low != 0) low &= low - 1;
          else high &= high - 1;
          words[i] = at[i] >= 0 ? p.placeOf[from + at[i]] : 0;
        }
#pragma unroll
        for (int i = 0; i < batch; i++)
          if (at[i] >= 0 && inside) w[i] = loadPacked<E, C>(lies(words[i]) ? placeAt(words[i]) : weights + at[i] * p.rowStride);
#pragma unroll
        for (int i = 0; i < batch; i++) {
          if (at[i] < 0) continue;
          if (inside && (words[i] & freshPlace)) *reinterpret_cast<Packed<E, C> *>(placeAt(words[i])) = w[i];
#pragma unroll
          for (int c = 0; c < C; c++) {
            float weight = 0.0f;
            if (inside) weight = w[i].at(c);
            else if (column + c < outputs) {
              const Stored stored = lies(words[i]) ? placeAt(words[i])[c] : weights[at[i] * p.rowStride + c];
              if (words[i] & freshPlace) placeAt(words[i])[c] = stored;
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
      float y = begin > 0 ? sums[o] : 0.0f;
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

struct HeldOutputsParams {
  i64 rows;
  const float *x;
  i64 inputs;
  const u32 *active;
  const u32 *placeOf;
  void *held; // row = place
  const void *matrix; // output-major, row = neuron
  i64 rowStride;
  float *out;
  i64 outStride;
  const float *bias;
  i64 blocksPerRound;
};

// The work and the shapes of outputRows (sparse.cu) over a whole set, with the places of rows looked up by neuron.
template <class E, int R> __device__ __forceinline__ void heldOutputs(const HeldOutputsParams &p) {
  typedef typename E::Stored Stored;
  extern __shared__ __align__(16) float shared[];
  enterKernel();
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows = (int)p.rows, inputs = (int)p.inputs, end = (int)p.active[0];
  const int blocks = (inputs + blockInputs - 1) / blockInputs, blocksPerRound = (int)p.blocksPerRound;
  float *tile = shared + warp * (32 * 33 + R * 32);     // [32 rows][33], of this warp
  float *own = tile + 32 * 33;                          // [R][32 inputs]
  float *partial = shared + warps * (32 * 33 + R * 32); // [blocksPerRound][R][32]
  float *sums = partial + blocksPerRound * R * 32;      // [R][32]

  for (int first = blockIdx.x * 32; first < end; first += gridDim.x * 32) {
    const int count = min(32, end - first);
    const Stored *ownRow = (const Stored *)p.matrix;
    Stored *ownFresh = nullptr;
    int ownOutput = 0;
    if (lane < count) {
      ownOutput = (int)p.active[1 + first + lane];
      const u32 word = p.placeOf[ownOutput];
      Stored *place = (Stored *)p.held + (i64)((word & ~freshPlace) - 1) * p.rowStride;
      ownRow = lies(word) ? place : ownRow + (i64)ownOutput * p.rowStride;
      if (word & freshPlace) ownFresh = place;
    }
    for (int roundBegin = 0; roundBegin < blocks; roundBegin += blocksPerRound) {
      const int roundEnd = min(blocks, roundBegin + blocksPerRound);
      for (int block = roundBegin + warp; block < roundEnd; block += warps) {
        float acc[R];
#pragma unroll
        for (int r = 0; r < R; r++) acc[r] = 0.0f;
        const int blockEnd = min(inputs, (block + 1) * blockInputs);
        for (int from = block * blockInputs; from < blockEnd; from += 32) {
          const int part = min(32, blockEnd - from);
          Stored w[32];
#pragma unroll
          for (int j = 0; j < 32; j++) {
            const Stored *row = (const Stored *)__shfl_sync(0xffffffffu, (u64)ownRow, j);
            w[j] = j < count && lane < part ? row[from + lane] : (Stored)0;
          }
#pragma unroll
          for (int j = 0; j < 32; j++) {
            Stored *fresh = (Stored *)__shfl_sync(0xffffffffu, (u64)ownFresh, j);
            if (fresh && lane < part) fresh[from + lane] = w[j];
          }
          __syncwarp();
#pragma unroll
          for (int j = 0; j < 32; j++) tile[j * 33 + lane] = widen<E>(w[j]);
#pragma unroll
          for (int r = 0; r < R; r++)
            own[r * 32 + lane] = r < rows && lane < part ? p.x[(i64)r * inputs + from + lane] : 0.0f;
          __syncwarp();
          for (int i = 0; i < part; i++) {
            const float weight = tile[lane * 33 + i];
#pragma unroll
            for (int r = 0; r < R; r++) acc[r] = acc[r] + own[r * 32 + i] * weight;
          }
        }
#pragma unroll
        for (int r = 0; r < R; r++) partial[((block - roundBegin) * R + r) * 32 + lane] = acc[r];
      }
      __syncthreads();
      for (int o = threadIdx.x; o < R * 32; o += blockDim.x) {
        const int r = o / 32;
        // The warp's lanes are the outputs, so the lane's own output is that of this sum.
        if (r >= rows || lane >= count) continue;
        float y = roundBegin > 0 ? sums[o] : 0.0f;
        for (int block = roundBegin; block < roundEnd; block++) y = y + partial[((block - roundBegin) * R + r) * 32 + lane];
        if (roundEnd < blocks) {
          sums[o] = y;
          continue;
        }
        if (p.bias) y = y + p.bias[ownOutput];
        p.out[(i64)r * p.outStride + ownOutput] = y;
      }
      __syncthreads();
    }
  }
}

#define HELD_ROWS(type, E, R, threads)                                                                                 \
  extern "C" __global__ void __launch_bounds__(threads, 1) held_inputs_##type##_r##R##_16B(const HeldInputsParams p) { \
    heldInputs<E, R, 8, 16 / (int)sizeof(E::Stored)>(p);                                                               \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(threads, 1) held_inputs_##type##_r##R##_1(const HeldInputsParams p) {   \
    heldInputs<E, R, 32, 1>(p);                                                                                        \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256, 1) held_outputs_##type##_r##R(const HeldOutputsParams p) {            \
    heldOutputs<E, R>(p);                                                                                              \
  }
#define HELD_ROWS_OF(type, E)                                                                                          \
  HELD_ROWS(type, E, 1, 640) HELD_ROWS(type, E, 2, 640) HELD_ROWS(type, E, 4, 640) HELD_ROWS(type, E, 8, 320)
HELD_ROWS_OF(WEIGHT_NAME, WEIGHT_TYPE)
