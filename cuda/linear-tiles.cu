// y = W x + b for many rows: a tiled matrix product. An output keeps two accumulators, the running block of 128 inputs
// and the sum of the blocks before it, so its order of additions is that of one row alone.
#include "load-four.cuh"

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

// Where the i-th of a thread's rows or columns lies in the tile: fours a part of the tile apart, so that 16-byte reads of
// shared memory meet no bank conflict, then single ones.
template <int each, int threads> __device__ __forceinline__ constexpr int placeInTile(int thread, int i) {
  return i < each / 4 * 4 ? i / 4 * (threads * 4) + thread * 4 + i % 4 : i * threads + thread;
}

template <int each, int threads> __device__ __forceinline__ void readFragment(float (&into)[each], const float *from, int thread) {
#pragma unroll
  for (int i = 0; i < each / 4; i++) {
    const float4 four = *reinterpret_cast<const float4 *>(from + placeInTile<each, threads>(thread, i * 4));
    into[i * 4] = four.x, into[i * 4 + 1] = four.y, into[i * 4 + 2] = four.z, into[i * 4 + 3] = four.w;
  }
#pragma unroll
  for (int i = each / 4 * 4; i < each; i++) into[i] = from[placeInTile<each, threads>(thread, i)];
}

// A thread holds TM x TN outputs of a tile; weights are widened once, on their way to shared memory.
template <class E, bool outputMajor, int tileRows, int tileColumns, int TM, int TN>
__device__ __forceinline__ void linearTiles(const LinearTilesParams &p) {
  typedef typename E::Stored Stored;
  constexpr int threadsX = tileColumns / TN, threadsY = tileRows / TM, threads = threadsX * threadsY;
  constexpr int foursDeep = tileDepth / 4, foursWide = tileColumns / 4;
  constexpr int xFours = tileRows * foursDeep, wFours = tileColumns * foursDeep;
  constexpr int xLoads = (xFours + threads - 1) / threads, wLoads = (wFours + threads - 1) / threads;
  __shared__ __align__(16) float xs[2][tileDepth][tileRows + 4];
  __shared__ __align__(16) float ws[2][tileDepth][tileColumns + 4];
  const int tid = threadIdx.x, tx = tid % threadsX, ty = tid / threadsX;
  const int rows = (int)p.rows, inputs = (int)p.inputs, outputs = (int)p.outputs;
  const u32 xStride = (u32)p.xStride, rowStride = (u32)p.rowStride, outStride = (u32)p.outStride;
  const int firstRow = blockIdx.y * tileRows, firstColumn = blockIdx.x * tileColumns;
  const Stored *matrix = (const Stored *)p.matrix;
  const bool xAligned = (xStride & 3) == 0 && ((size_t)p.x & 15) == 0;
  const bool wAligned = (rowStride & 3) == 0 && ((size_t)matrix & (4 * sizeof(Stored) - 1)) == 0;

  enterKernel();
  float block[TM][TN], sum[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int row = firstRow + placeInTile<TM, threadsY>(ty, i), column = firstColumn + placeInTile<TN, threadsX>(tx, j);
      block[i][j] = 0.0f;
      sum[i][j] = p.continues && row < rows && column < outputs ? p.out[(size_t)row * outStride + column] : 0.0f;
    }

  Packed<F32, 4> xNext[xLoads];
  Packed<E, 4> wNext[wLoads];
  auto loadStep = [&](int from) {
#pragma unroll
    for (int l = 0; l < xLoads; l++) {
      const int e = tid + l * threads, k = from + e % foursDeep * 4, row = firstRow + e / foursDeep;
      const bool taken = row < rows && (xFours % threads == 0 || e < xFours);
      xNext[l] = loadFour<F32>(p.x + (size_t)(taken ? row : 0) * xStride + k, taken ? inputs - k : 0, xAligned);
    }
#pragma unroll
    for (int l = 0; l < wLoads; l++) {
      const int e = tid + l * threads;
      const int k = from + (outputMajor ? e % foursDeep * 4 : e / foursWide);
      const int column = firstColumn + (outputMajor ? e / foursDeep : e % foursWide * 4);
      const bool taken = column < outputs && k < inputs && (wFours % threads == 0 || e < wFours);
      const size_t at = outputMajor ? (size_t)column * rowStride + k : (size_t)k * rowStride + column;
      wNext[l] = loadFour<E>(matrix + (taken ? at : 0), taken ? outputMajor ? inputs - k : outputs - column : 0, wAligned);
    }
  };
  auto storeStep = [&](int stage) {
#pragma unroll
    for (int l = 0; l < xLoads; l++) {
      const int e = tid + l * threads;
      if (xFours % threads != 0 && e >= xFours) continue;
#pragma unroll
      for (int j = 0; j < 4; j++) xs[stage][e % foursDeep * 4 + j][e / foursDeep] = xNext[l].at(j);
    }
#pragma unroll
    for (int l = 0; l < wLoads; l++) {
      const int e = tid + l * threads;
      if (wFours % threads != 0 && e >= wFours) continue;
      if (outputMajor) {
#pragma unroll
        for (int j = 0; j < 4; j++) ws[stage][e % foursDeep * 4 + j][e / foursDeep] = wNext[l].at(j);
      } else {
        *reinterpret_cast<float4 *>(&ws[stage][e / foursWide][e % foursWide * 4]) =
            make_float4(wNext[l].at(0), wNext[l].at(1), wNext[l].at(2), wNext[l].at(3));
      }
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
    // Operands of the next input come while those of this one are used. Four inputs unrolled: more would not stay in the
    // instruction cache.
    float a[2][TM], b[2][TN];
    readFragment<TM, threadsY>(a[0], xs[stage][0], ty);
    readFragment<TN, threadsX>(b[0], ws[stage][0], tx);
#pragma unroll 4
    for (int k = 0; k < tileDepth; k++) {
      if (k + 1 < tileDepth) {
        readFragment<TM, threadsY>(a[(k + 1) & 1], xs[stage][k + 1], ty);
        readFragment<TN, threadsX>(b[(k + 1) & 1], ws[stage][k + 1], tx);
      }
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) block[i][j] = block[i][j] + a[k & 1][i] * b[k & 1][j];
    }
    // Inputs past the end were read as zeros, which add nothing.
    if ((step + 1) % (blockInputs / tileDepth) == 0 || step + 1 == steps) {
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
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
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int row = firstRow + placeInTile<TM, threadsY>(ty, i), column = firstColumn + placeInTile<TN, threadsX>(tx, j);
      if (row >= rows || column >= outputs) continue;
      const size_t at = (size_t)row * outStride + column;
      float y = sum[i][j];
      if (p.bias) y = y + p.bias[column];
      if (p.residual) y = y + p.residual[at];
      if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
      p.out[at] = y;
    }
}

// Tiles of M x N outputs, TM x TN a thread; src/backend/cuda/tile-variants.ts chooses among them.
#define LINEAR_TILES(type, E, layout, outputMajor, M, N, TM, TN)                                                       \
  extern "C" __global__ void __launch_bounds__(M / TM * (N / TN))                                                      \
      linear_tiles_##type##_##layout##_##M##x##N##_##TM##x##TN(const LinearTilesParams p) {                            \
    linearTiles<E, outputMajor, M, N, TM, TN>(p);                                                                      \
  }
#define LINEAR_TILES_OF(type, E)                                                                                       \
  LINEAR_TILES(type, E, in, false, 128, 160, 8, 10)                                                                    \
  LINEAR_TILES(type, E, in, false, 128, 128, 8, 8)                                                                     \
  LINEAR_TILES(type, E, in, false, 128, 80, 8, 10)                                                                     \
  LINEAR_TILES(type, E, in, false, 128, 80, 8, 5)                                                                      \
  LINEAR_TILES(type, E, in, false, 128, 64, 8, 8)                                                                      \
  LINEAR_TILES(type, E, in, false, 128, 64, 8, 4)                                                                      \
  LINEAR_TILES(type, E, in, false, 64, 80, 8, 5)                                                                       \
  LINEAR_TILES(type, E, in, false, 64, 64, 8, 4)                                                                       \
  LINEAR_TILES(type, E, in, false, 64, 40, 4, 5)                                                                       \
  LINEAR_TILES(type, E, in, false, 32, 32, 4, 4)                                                                       \
  LINEAR_TILES(type, E, out, true, 128, 64, 8, 4)                                                                      \
  LINEAR_TILES(type, E, out, true, 64, 64, 8, 4)                                                                       \
  LINEAR_TILES(type, E, out, true, 32, 32, 4, 4)
LINEAR_TILES_OF(WEIGHT_NAME, WEIGHT_TYPE)
