// Products that read only the rows of active neurons: from device memory, or straight from mapped host memory, which the
// kernels cannot tell apart.
#include "active-direct.cuh"
#include "output-rows.cuh"

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

#define SPARSE(type, E, R)                                                                                             \
  extern "C" __global__ void __launch_bounds__(512) active_inputs_##type##_r##R##_c1(const ActiveInputsParams p) {     \
    activeInputs<E, R, 1>(p);                                                                                          \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(512) active_inputs_##type##_r##R##_c2(const ActiveInputsParams p) {     \
    activeInputs<E, R, 2>(p);                                                                                          \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256) output_rows_##type##_r##R(const OutputRowsParams p) {              \
    outputRows<E, R>(p, RowsByNeuron<E>());                                                                            \
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
