// y = W x + b for 1 to 8 rows: every weight is read once and serves all rows. A warp owns 32 * C columns of one block
// of 128 inputs; block sums meet in shared memory and are added there in ascending order.
#include "numbers.cuh"

struct LinearRowsParams {
  i64 rows;
  const float *x; // at the first input of the op
  i64 xStride;
  i64 inputs;
  i64 rowStride;
  i64 outStride;
  i64 continues;
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 threshold;
  i64 blocksPerRound;
  // Up to three products of one x (query, key and value): blockIdx.y chooses.
  const void *matrix0;
  float *out0;
  const float *bias0;
  const float *residual0;
  i64 outputs0;
  const void *matrix1;
  float *out1;
  const float *bias1;
  i64 outputs1;
  const void *matrix2;
  float *out2;
  const float *bias2;
  i64 outputs2;
};

template <class E, int R, int C> struct RowTile {
  float acc[R][C];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
  }

  __device__ __forceinline__ void add(const Packed<E, C> &w, const float (&x)[R]) {
#pragma unroll
    for (int c = 0; c < C; c++) {
      const float weight = w.at(c);
#pragma unroll
      for (int r = 0; r < R; r++) acc[r][c] = acc[r][c] + x[r] * weight;
    }
  }
};

template <class E, int R, int C>
__device__ __forceinline__ void linearRows(const LinearRowsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int columns = 32 * C;
  constexpr int batch = 16; // loads of a thread in flight, twice
  extern __shared__ float shared[];
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int which = blockIdx.y;
  const Stored *matrix = (const Stored *)(which == 0 ? p.matrix0 : which == 1 ? p.matrix1 : p.matrix2);
  float *out = which == 0 ? p.out0 : which == 1 ? p.out1 : p.out2;
  const float *bias = which == 0 ? p.bias0 : which == 1 ? p.bias1 : p.bias2;
  const float *residual = which == 0 ? p.residual0 : nullptr;
  const int outputs = (int)(which == 0 ? p.outputs0 : which == 1 ? p.outputs1 : p.outputs2);
  const int rows = (int)p.rows, inputs = (int)p.inputs;
  const int firstColumn = blockIdx.x * columns;
  if (firstColumn >= outputs) return;
  const int blocks = (inputs + blockInputs - 1) / blockInputs;
  const int blocksPerRound = (int)p.blocksPerRound;
  float *own = shared + warp * R * blockInputs;                 // [R][128] of this warp
  float *partial = shared + warps * R * blockInputs;            // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns;         // [R][columns], between rounds
  const int column = firstColumn + lane * C;
  const bool inside = column + C <= outputs;

  for (int begin = 0; begin < blocks; begin += blocksPerRound) {
    const int end = min(blocks, begin + blocksPerRound);
    for (int block = begin + warp; block < end; block += warps) {
      const int from = block * blockInputs;
      const int count = min(blockInputs, inputs - from);
      const Stored *weights = matrix + (i64)from * p.rowStride + column;
      RowTile<E, R, C> tile;
      tile.clear();
      Packed<E, C> w[2][batch];
      const bool whole = count == blockInputs && inside;
      if (whole) {
#pragma unroll
        for (int i = 0; i < batch; i++) w[0][i] = loadPacked<E, C>(weights + i * p.rowStride);
      }
      __syncwarp();
#pragma unroll
      for (int r = 0; r < R; r++)
        for (int i = lane; i < blockInputs; i += 32)
          own[r * blockInputs + i] = r < rows && i < count ? p.x[r * p.xStride + from + i] : 0.0f;
      __syncwarp();
      if (whole) {
#pragma unroll
        for (int step = 0; step < blockInputs / batch; step++) {
          if (step + 1 < blockInputs / batch) {
#pragma unroll
            for (int i = 0; i < batch; i++)
              w[(step + 1) & 1][i] = loadPacked<E, C>(weights + ((step + 1) * batch + i) * p.rowStride);
          }
#pragma unroll
          for (int i = 0; i < batch; i += 4) {
            float4 four[R];
#pragma unroll
            for (int r = 0; r < R; r++)
              four[r] = *reinterpret_cast<const float4 *>(own + r * blockInputs + step * batch + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
              float x[R];
#pragma unroll
              for (int r = 0; r < R; r++) x[r] = j == 0 ? four[r].x : j == 1 ? four[r].y : j == 2 ? four[r].z : four[r].w;
              tile.add(w[step & 1][i + j], x);
            }
          }
        }
      } else {
        for (int i = 0; i < count; i++) {
#pragma unroll
          for (int c = 0; c < C; c++) {
            const float weight = column + c < outputs ? widen<E>(weights[(i64)i * p.rowStride + c]) : 0.0f;
#pragma unroll
            for (int r = 0; r < R; r++) tile.acc[r][c] = tile.acc[r][c] + own[r * blockInputs + i] * weight;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) partial[((block - begin) * R + r) * columns + lane * C + c] = tile.acc[r][c];
    }
    __syncthreads();
    for (int o = threadIdx.x; o < R * columns; o += blockDim.x) {
      const int r = o / columns, target = firstColumn + o % columns;
      if (r >= rows || target >= outputs) continue;
      const i64 at = r * p.outStride + target;
      float y = begin > 0 ? sums[o] : p.continues ? out[at] : 0.0f;
      for (int block = begin; block < end; block++) y = y + partial[(block - begin) * R * columns + o];
      if (end < blocks) {
        sums[o] = y;
        continue;
      }
      if (bias) y = y + bias[target];
      if (residual) y = y + residual[at];
      if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
      out[at] = y;
    }
    if (end < blocks) __syncthreads();
  }
}

#define LINEAR_ROWS(type, E, R, C)                                                                                     \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640)                                                    \
      linear_rows_##type##_r##R##_c##C(const LinearRowsParams p) {                                                     \
    linearRows<E, R, C>(p);                                                                                            \
  }
#define LINEAR_ROWS_OF(type, E)                                                                                        \
  LINEAR_ROWS(type, E, 1, 1)                                                                                           \
  LINEAR_ROWS(type, E, 2, 1)                                                                                           \
  LINEAR_ROWS(type, E, 4, 1)                                                                                           \
  LINEAR_ROWS(type, E, 8, 1)                                                                                           \
  LINEAR_ROWS(type, E, 1, 2)                                                                                           \
  LINEAR_ROWS(type, E, 2, 2)                                                                                           \
  LINEAR_ROWS(type, E, 4, 2)                                                                                           \
  LINEAR_ROWS(type, E, 8, 2)
LINEAR_ROWS_OF(f32, F32)
LINEAR_ROWS_OF(f16, F16)
LINEAR_ROWS_OF(bf16, Bf16)
