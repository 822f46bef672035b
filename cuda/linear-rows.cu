// y = W x + b for 1 to 8 rows: every weight is read once and serves all rows. A group of `lanes` lanes owns lanes * C
// columns of one block of 128 inputs; block sums meet in shared memory and are added there in ascending order. A norm in
// front of the product, an activation behind it and the store of keys and values can be part of the kernel.
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
  i64 prefetchBytes; // of the matrix, asked for by each block of threads before the inputs are there
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
  // A norm of x: -1 for none, 0 layer, 1 RMS. Its result goes to normOut as well.
  i64 norm;
  f64 epsilon;
  const float *gamma;
  const float *beta;
  float *normOut;
  // Store of products 1 and 2 as keys and values: -1 for none, 0 F32, 1 F16.
  i64 store;
  const int *positions;
  void *keyCache;
  void *valueCache;
  i64 headDim;
  i64 capacity;
  u32 *status;
};

template <class E>
__device__ __forceinline__ void storeCache(const LinearRowsParams &p, int which, int row, int column, int outputs, float y) {
  typedef typename E::Stored Stored;
  const i64 slot = p.positions[2 * row], position = p.positions[2 * row + 1];
  const i64 element = slot * outputs + column; // (slot, head, i): a slot holds `outputs` elements a position
  const typename E::Stored stored = narrowKv<E>(y, p.status);
  if (which == 1) ((Stored *)p.keyCache)[element * p.capacity + position] = stored;
  else ((Stored *)p.valueCache)[(element / p.headDim * p.capacity + position) * p.headDim + element % p.headDim] = stored;
}

template <class E, int R, int lanes, int C>
__device__ __forceinline__ void linearRows(const LinearRowsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int columns = lanes * C;
  constexpr int batch = C == 1 ? 16 : sizeof(Stored) == 4 && R == 8 ? 4 : 32 / C; // loads in flight, twice
  constexpr int batches = blockInputs / batch;
  extern __shared__ float shared[];
  releaseSuccessor();
  const int which = blockIdx.y;
  const Stored *matrix = (const Stored *)(which == 0 ? p.matrix0 : which == 1 ? p.matrix1 : p.matrix2);
  float *out = which == 0 ? p.out0 : which == 1 ? p.out1 : p.out2;
  const float *bias = which == 0 ? p.bias0 : which == 1 ? p.bias1 : p.bias2;
  const float *residual = which == 0 ? p.residual0 : nullptr;
  const int outputs = (int)(which == 0 ? p.outputs0 : which == 1 ? p.outputs1 : p.outputs2);
  const int rows = (int)p.rows, inputs = (int)p.inputs;
  const int firstColumn = blockIdx.x * columns;
  const int groups = blockDim.x / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  const int blocks = (inputs + blockInputs - 1) / blockInputs;
  const int blocksPerRound = (int)p.blocksPerRound;
  float *own = shared + group * R * blockInputs;         // [R][128] of this group
  float *partial = shared + groups * R * blockInputs;    // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns;  // [R][columns], between rounds
  float *normRow = sums + R * columns;                   // [R][blocks * 129], only with a norm
  float *normSums = normRow + R * blocks * (blockInputs + 1);
  const int column = firstColumn + lane * C;
  const bool inside = column + C <= outputs;
  const bool present = firstColumn < outputs;

  // A share of the matrix, not the block's own columns: long runs are asked for faster than short ones.
  if (p.prefetchBytes > 0) prefetchBytes((const char *)matrix + blockIdx.x * p.prefetchBytes, p.prefetchBytes);
  awaitPredecessor();
  if (!present) return;

  if (p.norm >= 0) {
    const bool rms = p.norm == 1;
    for (int r = 0; r < rows; r++) {
      float *row = normRow + r * blocks * (blockInputs + 1);
      const float *x = p.x + r * p.xStride;
#pragma unroll 8
      for (int i = threadIdx.x; i < inputs; i += blockDim.x) row[i + i / blockInputs] = x[i];
      __syncthreads();
      const NormScale scale = normScale(row, normSums, inputs, rms, (float)p.epsilon);
#pragma unroll 8
      for (int i = threadIdx.x; i < inputs; i += blockDim.x) {
        const float y = normed(row[i + i / blockInputs], scale, rms, p.gamma, p.beta, i);
        row[i + i / blockInputs] = y;
        if (blockIdx.x == 0 && which == 0) p.normOut[(i64)r * inputs + i] = y;
      }
    }
    __syncthreads();
  }

  for (int begin = 0; begin < blocks; begin += blocksPerRound) {
    const int end = min(blocks, begin + blocksPerRound);
    // All groups of a warp take the same number of turns.
    for (int base = begin; base < end; base += groups) {
      const int block = base + group;
      const bool taken = block < end;
      const int from = block * blockInputs;
      const int count = taken ? min(blockInputs, inputs - from) : 0;
      const Stored *weights = matrix + (i64)from * p.rowStride + column;
      const bool whole = count == blockInputs && inside;
      Packed<E, C> w[2][batch];
      if (whole) {
#pragma unroll
        for (int i = 0; i < batch; i++) w[0][i] = loadPacked<E, C>(weights + i * p.rowStride);
      }
      __syncwarp();
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int k = 0; k < blockInputs / lanes; k++) {
          const int i = k * lanes + lane;
          float value = 0.0f;
          if (r < rows && i < count)
            value = p.norm >= 0 ? normRow[(r * blocks + block) * (blockInputs + 1) + i] : p.x[r * p.xStride + from + i];
          own[r * blockInputs + i] = value;
        }
      __syncwarp();
      float acc[R][C];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
      auto addBatch = [&](const Packed<E, C> (&now)[batch], int step) {
#pragma unroll
        for (int i = 0; i < batch; i += 4) {
          float4 four[R];
#pragma unroll
          for (int r = 0; r < R; r++)
            four[r] = *reinterpret_cast<const float4 *>(own + r * blockInputs + step * batch + i);
#pragma unroll
          for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < C; c++) {
              const float weight = now[i + j].at(c);
#pragma unroll
              for (int r = 0; r < R; r++) {
                const float x = j == 0 ? four[r].x : j == 1 ? four[r].y : j == 2 ? four[r].z : four[r].w;
                acc[r][c] = acc[r][c] + x * weight;
              }
            }
        }
      };
      if (whole) {
#pragma unroll 1
        for (int step = 0; step < batches; step += 2) {
#pragma unroll
          for (int i = 0; i < batch; i++)
            w[1][i] = loadPacked<E, C>(weights + ((step + 1) * batch + i) * p.rowStride);
          addBatch(w[0], step);
          if (step + 2 < batches) {
#pragma unroll
            for (int i = 0; i < batch; i++)
              w[0][i] = loadPacked<E, C>(weights + ((step + 2) * batch + i) * p.rowStride);
          }
          addBatch(w[1], step + 1);
        }
      } else {
        for (int i = 0; i < count; i++) {
#pragma unroll
          for (int c = 0; c < C; c++) {
            const float weight = column + c < outputs ? widen<E>(weights[(i64)i * p.rowStride + c]) : 0.0f;
#pragma unroll
            for (int r = 0; r < R; r++) acc[r][c] = acc[r][c] + own[r * blockInputs + i] * weight;
          }
        }
      }
      if (taken) {
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
      const i64 at = r * p.outStride + target;
      float y = begin > 0 ? sums[o] : p.continues ? out[at] : 0.0f;
#pragma unroll 16
      for (int block = 0; block < end - begin; block++) y = y + partial[block * R * columns + o];
      if (end < blocks) {
        sums[o] = y;
        continue;
      }
      if (bias) y = y + bias[target];
      if (residual) y = y + residual[at];
      if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
      out[at] = y;
      if (p.store >= 0 && which > 0) {
        if (p.store == 0) storeCache<F32>(p, which, r, target, outputs, y);
        else storeCache<F16>(p, which, r, target, outputs, y);
      }
    }
    if (end < blocks) __syncthreads();
  }
}

#define LINEAR_ROWS(type, E, R)                                                                                        \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640)                                                     \
      linear_rows_##type##_r##R##_8x4(const LinearRowsParams p) {                                                      \
    linearRows<E, R, 8, 4>(p);                                                                                         \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640)                                                     \
      linear_rows_##type##_r##R##_16x4(const LinearRowsParams p) {                                                     \
    linearRows<E, R, 16, 4>(p);                                                                                        \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640)                                                     \
      linear_rows_##type##_r##R##_32x1(const LinearRowsParams p) {                                                     \
    linearRows<E, R, 32, 1>(p);                                                                                        \
  }
#define LINEAR_ROWS_OF(type, E)                                                                                        \
  LINEAR_ROWS(type, E, 1) LINEAR_ROWS(type, E, 2) LINEAR_ROWS(type, E, 4) LINEAR_ROWS(type, E, 8)
LINEAR_ROWS_OF(WEIGHT_NAME, WEIGHT_TYPE)
