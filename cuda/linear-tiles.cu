// y = W x + b for many rows: a tiled matrix product. An output keeps two accumulators, the running block of 128 inputs
// and the sum of the blocks before it, so its order of additions is that of one row alone.
#include "numbers.cuh"

struct LinearTilesParams {
  i64 rows;
  const float *x; // at the first input of the op
  i64 xStride;
  i64 inputs;
  const void *matrix;
  i64 rowStride;
  i64 outputs;
  float *out;
  i64 outStride;
  i64 continues;
  const float *bias;
  const float *residual;
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 threshold;
};

constexpr int tileDepth = 16; // inputs of a step; divides 128

// A thread holds 8 x 8 outputs: 4 + 4 rows and 4 + 4 columns, half a tile apart, so that its 16-byte reads of shared
// memory meet no bank conflict.
template <class E, bool outputMajor, int tileRows, int tileColumns>
__device__ __forceinline__ void linearTiles(const LinearTilesParams &p) {
  typedef typename E::Stored Stored;
  constexpr int threadsX = tileColumns / 8, threadsY = tileRows / 8, threads = threadsX * threadsY;
  constexpr int xLoads = tileRows * tileDepth / threads, wLoads = tileColumns * tileDepth / threads;
  __shared__ float xs[2][tileDepth][tileRows + 4];
  __shared__ float ws[2][tileDepth][tileColumns + 4];
  const int tid = threadIdx.x, tx = tid % threadsX, ty = tid / threadsX;
  const int rows = (int)p.rows, inputs = (int)p.inputs, outputs = (int)p.outputs;
  const u32 xStride = (u32)p.xStride, rowStride = (u32)p.rowStride, outStride = (u32)p.outStride;
  const int firstRow = blockIdx.y * tileRows, firstColumn = blockIdx.x * tileColumns;
  const Stored *matrix = (const Stored *)p.matrix;

  enterKernel();
  float block[8][8], sum[8][8];
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const int row = firstRow + (i / 4) * (tileRows / 2) + ty * 4 + i % 4;
      const int column = firstColumn + (j / 4) * (tileColumns / 2) + tx * 4 + j % 4;
      block[i][j] = 0.0f;
      sum[i][j] = p.continues && row < rows && column < outputs ? p.out[(size_t)row * outStride + column] : 0.0f;
    }

  float xNext[xLoads];
  Stored wNext[wLoads];
  auto loadStep = [&](int from) {
#pragma unroll
    for (int l = 0; l < xLoads; l++) {
      const int e = tid + l * threads, k = from + e % tileDepth, row = firstRow + e / tileDepth;
      xNext[l] = row < rows && k < inputs ? p.x[(size_t)row * xStride + k] : 0.0f;
    }
#pragma unroll
    for (int l = 0; l < wLoads; l++) {
      const int e = tid + l * threads;
      const int k = from + (outputMajor ? e % tileDepth : e / tileColumns);
      const int column = firstColumn + (outputMajor ? e / tileDepth : e % tileColumns);
      const size_t at = outputMajor ? (size_t)column * rowStride + k : (size_t)k * rowStride + column;
      wNext[l] = column < outputs && k < inputs ? matrix[at] : (Stored)0; // all bits zero is zero in every type
    }
  };
  auto storeStep = [&](int stage) {
#pragma unroll
    for (int l = 0; l < xLoads; l++) {
      const int e = tid + l * threads;
      xs[stage][e % tileDepth][e / tileDepth] = xNext[l];
    }
#pragma unroll
    for (int l = 0; l < wLoads; l++) {
      const int e = tid + l * threads;
      const int k = outputMajor ? e % tileDepth : e / tileColumns;
      const int column = outputMajor ? e / tileDepth : e % tileColumns;
      ws[stage][k][column] = widen<E>(wNext[l]);
    }
  };

  const int steps = (inputs + tileDepth - 1) / tileDepth;
  if (steps > 0) {
    loadStep(0);
    storeStep(0);
    __syncthreads();
  }
  for (int step = 0; step < steps; step++) {
    const int stage = step & 1;
    if (step + 1 < steps) loadStep((step + 1) * tileDepth);
#pragma unroll
    for (int k = 0; k < tileDepth; k++) {
      float a[8], b[8];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float4 fourRows = *reinterpret_cast<const float4 *>(&xs[stage][k][half * (tileRows / 2) + ty * 4]);
        a[half * 4] = fourRows.x, a[half * 4 + 1] = fourRows.y, a[half * 4 + 2] = fourRows.z, a[half * 4 + 3] = fourRows.w;
        const float4 fourColumns = *reinterpret_cast<const float4 *>(&ws[stage][k][half * (tileColumns / 2) + tx * 4]);
        b[half * 4] = fourColumns.x, b[half * 4 + 1] = fourColumns.y;
        b[half * 4 + 2] = fourColumns.z, b[half * 4 + 3] = fourColumns.w;
      }
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) block[i][j] = block[i][j] + a[i] * b[j];
    }
    // Inputs past the end were read as zeros, which add nothing.
    if ((step + 1) % (blockInputs / tileDepth) == 0 || step + 1 == steps) {
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
          sum[i][j] = sum[i][j] + block[i][j];
          block[i][j] = 0.0f;
        }
    }
    if (step + 1 < steps) {
      storeStep(stage ^ 1);
      __syncthreads();
    }
  }

#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const int row = firstRow + (i / 4) * (tileRows / 2) + ty * 4 + i % 4;
      const int column = firstColumn + (j / 4) * (tileColumns / 2) + tx * 4 + j % 4;
      if (row >= rows || column >= outputs) continue;
      const size_t at = (size_t)row * outStride + column;
      float y = sum[i][j];
      if (p.bias) y = y + p.bias[column];
      if (p.residual) y = y + p.residual[at];
      if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
      p.out[at] = y;
    }
}

#define LINEAR_TILES(type, E, layout, outputMajor, M, N)                                                               \
  extern "C" __global__ void __launch_bounds__(M * N / 64)                                                             \
      linear_tiles_##type##_##layout##_##M##x##N(const LinearTilesParams p) {                                          \
    linearTiles<E, outputMajor, M, N>(p);                                                                              \
  }
#define LINEAR_TILES_OF(type, E)                                                                                       \
  LINEAR_TILES(type, E, in, false, 64, 64)                                                                             \
  LINEAR_TILES(type, E, in, false, 128, 128)                                                                           \
  LINEAR_TILES(type, E, out, true, 64, 64)
LINEAR_TILES_OF(WEIGHT_NAME, WEIGHT_TYPE)
