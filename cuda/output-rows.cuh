#pragma once
#include "row-places.cuh"

struct OutputRowsParams {
  i64 rows;
  const float *x; // at the first input of the op
  i64 xStride;
  i64 inputs;
  const void *matrix; // output-major
  i64 rowStride;
  i64 outputs; // of `linear`; unused where there is a list
  const u32 *active;
  i64 listBegin;
  i64 listEnd;
  const u32 *slots;
  float *out;
  i64 outStride;
  i64 continues;
  const float *bias;
  const float *residual;
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 threshold;
  i64 blocksPerRound;
};

// Output-major rows: 32 of them a time, a lane for each; a warp takes blocks of 128 inputs, which it brings through
// shared memory so that its loads are adjacent. The rows are the first ones, or those of the active set.
template <class E, int R, class Places>
__device__ __forceinline__ void outputRows(const OutputRowsParams &p, const Places &places) {
  typedef typename E::Stored Stored;
  extern __shared__ __align__(16) float shared[];
  enterKernel();
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows = (int)p.rows, inputs = (int)p.inputs;
  const int blocks = (inputs + blockInputs - 1) / blockInputs, blocksPerRound = (int)p.blocksPerRound;
  const Stored *matrix = (const Stored *)p.matrix;
  const int begin = p.active ? (int)p.listBegin : 0;
  const int end = !p.active ? (int)p.outputs : p.listEnd < 0 ? (int)p.active[0] : (int)p.listEnd;
  float *tile = shared + warp * (32 * 33 + R * 32);  // [32 rows][33], of this warp
  float *own = tile + 32 * 33;                       // [R][32 inputs]
  float *partial = shared + warps * (32 * 33 + R * 32); // [blocksPerRound][R][32]
  float *sums = partial + blocksPerRound * R * 32;   // [R][32]

  for (int first = begin + blockIdx.x * 32; first < end; first += gridDim.x * 32) {
    const int count = min(32, end - first);
    // A number where all rows lie by neuron, where addresses made kernels spill registers; else an address.
    i64 ownRow = 0;
    Stored *ownFresh = nullptr;
    int ownOutput = 0;
    if (lane < count) {
      ownOutput = p.active ? (int)p.active[1 + first + lane] : first + lane;
      const u32 word = places.word(ownOutput);
      const i64 row = p.active && p.slots ? (i64)p.slots[first + lane] : (i64)ownOutput;
      ownRow = Places::keeps ? (i64)(places.lies(word) ? places.place(word, 0) : matrix + row * p.rowStride) : row;
      if (places.fresh(word)) ownFresh = places.place(word, 0);
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
            const i64 found = __shfl_sync(0xffffffffu, ownRow, j);
            const Stored *row = Places::keeps ? (const Stored *)found : matrix + found * p.rowStride;
            w[j] = j < count && lane < part ? row[from + lane] : (Stored)0;
          }
          if constexpr (Places::keeps) {
#pragma unroll
            for (int j = 0; j < 32; j++) {
              Stored *fresh = (Stored *)__shfl_sync(0xffffffffu, (u64)ownFresh, j);
              if (fresh && lane < part) fresh[from + lane] = w[j];
            }
          }
          __syncwarp();
#pragma unroll
          for (int j = 0; j < 32; j++) tile[j * 33 + lane] = widen<E>(w[j]);
#pragma unroll
          for (int r = 0; r < R; r++)
            own[r * 32 + lane] = r < rows && lane < part ? p.x[r * p.xStride + from + lane] : 0.0f;
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
        const i64 at = r * p.outStride + ownOutput;
        float y = roundBegin > 0 ? sums[o] : p.continues ? p.out[at] : 0.0f;
        for (int block = roundBegin; block < roundEnd; block++) y = y + partial[((block - roundBegin) * R + r) * 32 + lane];
        if (roundEnd < blocks) {
          sums[o] = y;
          continue;
        }
        if (p.bias) y = y + p.bias[ownOutput];
        if (p.residual) y = y + p.residual[at];
        if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
        p.out[at] = y;
      }
      __syncthreads();
    }
  }
}
