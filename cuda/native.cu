// Products of prompt positions in `native` numerics: tensor cores, F16 or BF16 times F16 or BF16 with F32 sums. Activations
// are rounded to the weights' type. One chain an output: inputs in steps of 16, ascending, each step one
// mma.m16n8k16 whose accumulator is the sum so far. So an output depends on its own row and column alone: on no other row,
// no tile, no cut of the inputs at a multiple of 16 (the sum is stored and read back as it is), and a step whose
// activations are all zero changes nothing. docs/numerics.md, "Native".
#include "native-step.cuh"

struct NativeTilesParams {
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
  const u32 *active; // count, then neurons, ascending: the inputs (or outputs) that there are; 0 for all
  i64 listBegin;
  i64 listEnd; // -1: to the count
  const u32 *slots; // matrix row by list position; 0: by neuron
  u32 *status;
};

constexpr int stepInputs = 32; // of a stage in shared memory; two instructions

#if __CUDA_ARCH__ >= 800

// A warp holds 32 columns and `tileRows / warpsY` rows, as pieces of 16 rows and 8 columns.
template <class E, bool outputMajor, int tileRows, int tileColumns, int warpsY, int warpsX>
__device__ __forceinline__ void nativeTiles(const NativeTilesParams &p) {
  constexpr int threads = 32 * warpsX * warpsY;
  constexpr int warpRows = tileRows / warpsY, warpColumns = tileColumns / warpsX;
  constexpr int pieces16 = warpRows / 16, pieces8 = warpColumns / 8;
  constexpr int xWidth = stepInputs + padding;
  constexpr int wWidth = (outputMajor ? stepInputs : tileColumns) + padding;
  constexpr int wHeight = outputMajor ? tileColumns : stepInputs;
  constexpr int xLoads = tileRows * stepInputs / 4 / threads; // of four floats
  constexpr int wLoads = tileColumns * stepInputs / 8 / threads; // of eight halves
  constexpr int perRow = (outputMajor ? stepInputs : tileColumns) / 8;
  __shared__ __align__(16) u16 xs[2][tileRows][xWidth];
  __shared__ __align__(16) u16 ws[2][wHeight][wWidth];

  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int warpX = warp % warpsX, warpY = warp / warpsX;
  const int rows = (int)p.rows, inputs = (int)p.inputs;
  const int firstRow = blockIdx.y * tileRows, firstColumn = blockIdx.x * tileColumns;
  const u16 *matrix = (const u16 *)p.matrix;
  const bool xAligned = ((size_t)p.x | (size_t)p.xStride * 4) % 16 == 0;
  const bool wAligned = ((size_t)matrix | (size_t)p.rowStride * 2) % 16 == 0;

  enterKernel();
  // Where there is a list, its positions are the inputs of an input-major matrix, the outputs of an output-major one.
  const int listBegin = (int)p.listBegin;
  int listEnd = 0, outputs = (int)p.outputs;
  if (p.active) {
    const int count = (int)p.active[0];
    listEnd = p.listEnd < 0 || p.listEnd > count ? count : (int)p.listEnd;
    if (outputMajor) outputs = listEnd - listBegin;
  }
  if (outputMajor && firstColumn >= outputs) return;
  const u32 *list = p.active ? p.active + 1 : nullptr;

  float sums[pieces16][pieces8][4];
  auto place = [&](int i, int j, int c, int &row, int &column) {
    row = firstRow + warpY * warpRows + i * 16 + lane / 4 + (c / 2) * 8;
    column = firstColumn + warpX * warpColumns + j * 8 + (lane % 4) * 2 + c % 2;
  };
#pragma unroll
  for (int i = 0; i < pieces16; i++)
#pragma unroll
    for (int j = 0; j < pieces8; j++)
#pragma unroll
      for (int c = 0; c < 4; c++) {
        int row, column;
        place(i, j, c, row, column);
        sums[i][j][c] = p.continues && row < rows && column < outputs ? p.out[(size_t)row * p.outStride + column] : 0.0f;
      }

  int cursor = listBegin; // list position of the first neuron that no stage has had
  int step = 0, steps = (inputs + stepInputs - 1) / stepInputs;
  if (!outputMajor && list) {
    if (listEnd > listBegin) {
      step = (int)list[listBegin] / stepInputs;
      steps = (int)list[listEnd - 1] / stepInputs + 1;
    } else {
      steps = 0;
    }
  }

  u32 xNext[xLoads][2];
  uint4 wNext[wLoads];
  bool overflowed = false;
  auto loadStep = [&](int from) {
#pragma unroll
    for (int l = 0; l < xLoads; l++) {
      const int e = tid + l * threads, row = firstRow + e / (stepInputs / 4), k = from + e % (stepInputs / 4) * 4;
      float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (row < rows && k < inputs) {
        const float *at = p.x + (size_t)row * p.xStride + k;
        if (xAligned && k + 4 <= inputs) {
          const float4 four = *reinterpret_cast<const float4 *>(at);
          v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; i++)
            if (k + i < inputs) v[i] = at[i];
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++) overflowed |= overflows<E>(v[i]);
      xNext[l][0] = roundedPair<E>(v[0], v[1]);
      xNext[l][1] = roundedPair<E>(v[2], v[3]);
    }
    u32 present = 0; // which inputs of the stage are listed
    if (!outputMajor && list) {
      const int at = cursor + lane;
      const u32 neuron = at < listEnd ? list[at] : 0xffffffffu;
      const u32 offset = neuron - (u32)from;
      present = __reduce_or_sync(0xffffffffu, offset < (u32)stepInputs ? 1u << offset : 0u);
    }
#pragma unroll
    for (int l = 0; l < wLoads; l++) {
      const int e = tid + l * threads, line = e / perRow, part = e % perRow * 8;
      const u16 *at = nullptr;
      int count = 0;
      if (outputMajor) {
        const int column = firstColumn + line;
        if (column < outputs) {
          const int position = listBegin + column;
          const u32 stored = !list ? column : p.slots ? p.slots[position] : list[position];
          at = matrix + (size_t)stored * p.rowStride + from + part;
          count = inputs - from - part;
        }
      } else if (list) {
        if (present >> line & 1u) {
          const int position = cursor + __popc(present & ((1u << line) - 1u));
          const u32 stored = p.slots ? p.slots[position] : list[position];
          at = matrix + (size_t)stored * p.rowStride + firstColumn + part;
          count = outputs - firstColumn - part;
        }
      } else if (from + line < inputs) {
        at = matrix + (size_t)(from + line) * p.rowStride + firstColumn + part;
        count = outputs - firstColumn - part;
      }
      wNext[l] = count > 0 ? loadEight(at, count, wAligned) : make_uint4(0u, 0u, 0u, 0u);
    }
    cursor += __popc(present);
  };
  auto storeStep = [&](int stage) {
#pragma unroll
    for (int l = 0; l < xLoads; l++) {
      const int e = tid + l * threads;
      *reinterpret_cast<uint2 *>(&xs[stage][e / (stepInputs / 4)][e % (stepInputs / 4) * 4]) =
          make_uint2(xNext[l][0], xNext[l][1]);
    }
#pragma unroll
    for (int l = 0; l < wLoads; l++) {
      const int e = tid + l * threads;
      *reinterpret_cast<uint4 *>(&ws[stage][e / perRow][e % perRow * 8]) = wNext[l];
    }
  };

  int stage = 0;
  if (step < steps) {
    loadStep(step * stepInputs);
    storeStep(0);
    __syncthreads();
  }
  for (; step < steps; step++, stage ^= 1) {
    if (step + 1 < steps) loadStep((step + 1) * stepInputs);
#pragma unroll
    for (int k = 0; k < stepInputs; k += 16) {
      u32 a[pieces16][4];
#pragma unroll
      for (int i = 0; i < pieces16; i++)
        loadMatrices<false>(a[i], &xs[stage][warpY * warpRows + i * 16 + lane % 16][k + lane / 16 * 8]);
#pragma unroll
      for (int j = 0; j < pieces8; j += 2) {
        u32 b[4];
        const int column = warpX * warpColumns + j * 8 + lane / 16 * 8, half = lane / 8 % 2 * 8;
        if (outputMajor) loadMatrices<false>(b, &ws[stage][column + lane % 8][k + half]);
        else loadMatrices<true>(b, &ws[stage][k + half + lane % 8][column]);
#pragma unroll
        for (int i = 0; i < pieces16; i++) {
          multiply<E>(sums[i][j], a[i], b[0], b[1]);
          multiply<E>(sums[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
    if (step + 1 < steps) {
      storeStep(stage ^ 1);
      __syncthreads();
    }
  }

  if (overflowed) fail(p.status, activationOverflow);
#pragma unroll
  for (int i = 0; i < pieces16; i++)
#pragma unroll
    for (int j = 0; j < pieces8; j++)
#pragma unroll
      for (int c = 0; c < 4; c++) {
        int row, column;
        place(i, j, c, row, column);
        if (row >= rows || column >= outputs) continue;
        const int neuron = outputMajor && list ? (int)list[listBegin + column] : column;
        const size_t at = (size_t)row * p.outStride + neuron;
        float y = sums[i][j][c];
        if (p.bias) y = y + p.bias[neuron];
        if (p.residual) y = y + p.residual[at];
        if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
        p.out[at] = y;
      }
}

#else

// No tensor cores that sum in F32 over both types: the backend refuses such a device.
template <class E, bool outputMajor, int tileRows, int tileColumns, int warpsY, int warpsX>
__device__ __forceinline__ void nativeTiles(const NativeTilesParams &) {}

#endif

#define NATIVE_TILES(type, E, layout, outputMajor, M, N, warpsY, warpsX)                                               \
  extern "C" __global__ void __launch_bounds__(32 * warpsY * warpsX)                                                   \
      native_tiles_##type##_##layout##_##M##x##N(const NativeTilesParams p) {                                          \
    nativeTiles<E, outputMajor, M, N, warpsY, warpsX>(p);                                                              \
  }
#define NATIVE_TILES_OF(type, E)                                                                                       \
  NATIVE_TILES(type, E, in, false, 64, 64, 2, 2)                                                                       \
  NATIVE_TILES(type, E, in, false, 128, 128, 2, 4)                                                                     \
  NATIVE_TILES(type, E, out, true, 64, 64, 2, 2)                                                                       \
  NATIVE_TILES(type, E, out, true, 128, 128, 2, 4)
NATIVE_TILES_OF(WEIGHT_NAME, WEIGHT_TYPE)
