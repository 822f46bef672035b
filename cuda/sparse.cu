// Products that read only the rows of active neurons: from device memory, or straight from mapped host memory, which the
// kernels cannot tell apart.
#include "active-set.cuh"

struct ActiveInputsParams {
  i64 rows;
  const float *x;
  i64 xStride;
  const u32 *active;
  i64 listBegin;
  i64 listEnd;
  const u32 *slots;
  i64 neuronBlocks; // blocks of 128 that a neuron can lie in
  const void *matrix;
  i64 rowStride;
  i64 outputs;
  float *out;
  i64 continues;
  const float *bias;
  const float *residual;
  i64 blocksPerRound;
};

// A warp takes blocks of 128 neurons and 32 * C columns; up to `batch` rows are on their way at once.
template <class E, int R, int C> __device__ __forceinline__ void activeInputs(const ActiveInputsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int columns = 32 * C;
  constexpr int batch = 8;
  extern __shared__ __align__(16) float shared[];
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows = (int)p.rows, outputs = (int)p.outputs, blocks = (int)p.neuronBlocks;
  const int firstColumn = blockIdx.x * columns, column = firstColumn + lane * C;
  const int blocksPerRound = (int)p.blocksPerRound;
  const int listBegin = (int)p.listBegin;
  const u32 *list = p.active + 1;
  const Stored *matrix = (const Stored *)p.matrix;
  enterKernel();
  const int listEnd = p.listEnd < 0 ? (int)p.active[0] : (int)p.listEnd;
  int *starts = (int *)shared;                                 // [blocks], list position of a block's first neuron
  int *stops = starts + blocks;                                // [blocks]
  float *partial = shared + 2 * blocks;                        // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns;        // [R][columns]

  for (int b = threadIdx.x; b < blocks; b += blockDim.x) starts[b] = stops[b] = 0;
  __syncthreads();
  for (int at = listBegin + threadIdx.x; at < listEnd; at += blockDim.x) {
    const int own = list[at] / blockInputs;
    if (at == listBegin || (int)(list[at - 1] / blockInputs) != own) starts[own] = at;
    if (at + 1 == listEnd || (int)(list[at + 1] / blockInputs) != own) stops[own] = at + 1;
  }
  __syncthreads();

  const bool inside = column + C <= outputs;
  for (int begin = 0; begin < blocks; begin += blocksPerRound) {
    const int end = min(blocks, begin + blocksPerRound);
    for (int block = begin + warp; block < end; block += warps) {
      const int start = starts[block], stop = stops[block];
      if (start == stop) continue;
      float acc[R][C];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
      for (int from = start; from < stop; from += 32) {
        const int count = min(32, stop - from);
        // Each lane holds one neuron of the list: its row and its inputs.
        i64 ownRow = 0;
        float ownX[R];
#pragma unroll
        for (int r = 0; r < R; r++) ownX[r] = 0.0f;
        if (lane < count) {
          const u32 neuron = list[from + lane];
          ownRow = p.slots ? (i64)p.slots[from + lane] : (i64)neuron;
#pragma unroll
          for (int r = 0; r < R; r++)
            if (r < rows) ownX[r] = p.x[r * p.xStride + neuron];
        }
        for (int first = 0; first < count; first += batch) {
          Packed<E, C> w[batch];
#pragma unroll
          for (int i = 0; i < batch; i++) {
            const i64 row = __shfl_sync(0xffffffffu, ownRow, min(first + i, count - 1));
            if (first + i < count && inside) w[i] = loadPacked<E, C>(matrix + row * p.rowStride + column);
          }
#pragma unroll
          for (int i = 0; i < batch; i++) {
            float x[R];
#pragma unroll
            for (int r = 0; r < R; r++) x[r] = __shfl_sync(0xffffffffu, ownX[r], min(first + i, count - 1));
            const i64 row = __shfl_sync(0xffffffffu, ownRow, min(first + i, count - 1));
            if (first + i >= count) continue;
#pragma unroll
            for (int c = 0; c < C; c++) {
              const float weight = inside                  ? w[i].at(c)
                                   : column + c < outputs ? widen<E>(matrix[row * p.rowStride + column + c])
                                                          : 0.0f;
#pragma unroll
              for (int r = 0; r < R; r++) acc[r][c] = acc[r][c] + x[r] * weight;
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) partial[((block - begin) * R + r) * columns + lane * C + c] = acc[r][c];
    }
    __syncthreads();
    for (int o = threadIdx.x; o < R * columns; o += blockDim.x) {
      const int r = o / columns, target = firstColumn + o % columns;
      if (r >= rows || target >= outputs) continue;
      const i64 at = (i64)r * outputs + target;
      float y = begin > 0 ? sums[o] : p.continues ? p.out[at] : 0.0f;
      for (int block = begin; block < end; block++)
        if (starts[block] != stops[block]) y = y + partial[(block - begin) * R * columns + o];
      if (end < blocks) {
        sums[o] = y;
        continue;
      }
      if (p.bias) y = y + p.bias[target];
      if (p.residual) y = y + p.residual[at];
      p.out[at] = y;
    }
    if (end < blocks) __syncthreads();
  }
}

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
template <class E, int R> __device__ __forceinline__ void outputRows(const OutputRowsParams &p) {
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
    i64 ownRow = 0;
    int ownOutput = 0;
    if (lane < count) {
      ownOutput = p.active ? (int)p.active[1 + first + lane] : first + lane;
      ownRow = p.active && p.slots ? (i64)p.slots[first + lane] : (i64)ownOutput;
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
            const i64 row = __shfl_sync(0xffffffffu, ownRow, j);
            w[j] = j < count && lane < part ? matrix[row * p.rowStride + from + lane] : (Stored)0;
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

#include "active-direct.cuh"
#define SPARSE(type, E, R)                                                                                             \
  extern "C" __global__ void __launch_bounds__(512) active_inputs_##type##_r##R##_c1(const ActiveInputsParams p) {     \
    activeInputs<E, R, 1>(p);                                                                                          \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(512) active_inputs_##type##_r##R##_c2(const ActiveInputsParams p) {     \
    activeInputs<E, R, 2>(p);                                                                                          \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256) output_rows_##type##_r##R(const OutputRowsParams p) {              \
    outputRows<E, R>(p);                                                                                               \
  }
#define ACTIVE_DIRECT(type, E, R)                                                                                      \
  extern "C" __global__ void __launch_bounds__(640, 1)                                                                 \
      active_direct_##type##_r##R##_16B(const ActiveDirectParams p) {                                                  \
    activeDirect<E, R, 8, 16 / (int)sizeof(E::Stored)>(p);                                                             \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(640, 1)                                                                 \
      active_direct_##type##_r##R##_1(const ActiveDirectParams p) {                                                    \
    activeDirect<E, R, 32, 1>(p);                                                                                      \
  }
#define SPARSE_OF(type, E) SPARSE(type, E, 1) SPARSE(type, E, 2) SPARSE(type, E, 4) SPARSE(type, E, 8)
SPARSE_OF(WEIGHT_NAME, WEIGHT_TYPE)
#define ACTIVE_DIRECT_OF(type, E) ACTIVE_DIRECT(type, E, 1) ACTIVE_DIRECT(type, E, 2) ACTIVE_DIRECT(type, E, 4)
ACTIVE_DIRECT_OF(WEIGHT_NAME, WEIGHT_TYPE)
