// Products of many prompt positions with a whole input-major matrix in `native` numerics: the same chains as in
// cuda/native.cu, instruction by instruction, from activations that were rounded once, and stages that are copied to shared
// memory ahead of their use. What is listed, output-major or at addresses that are no multiples of 16 is left to native.cu.
#include "memory.cuh"
#include "native-step.cuh"

struct NativeRoundParams {
  i64 rows;
  const float *x; // at the first input of the op
  i64 xStride;
  i64 inputs;
  void *rounded; // [rows, pitch], zeros behind the inputs
  i64 pitch;     // a multiple of 8
  u32 *status;
};

struct NativeStagesParams {
  i64 rows;
  const void *x; // rounded
  i64 xPitch;
  i64 inputs;
  i64 rowStride;
  i64 outStride;
  i64 continues;
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 threshold;
  // Up to three products of one x (query, key and value): blockIdx.z chooses.
  const void *matrix0;
  float *out0;
  const float *bias0;
  const float *residual0;
  i64 outputs0;
  const void *matrix1;
  float *out1;
  const float *bias1;
  const float *residual1;
  i64 outputs1;
  const void *matrix2;
  float *out2;
  const float *bias2;
  const float *residual2;
  i64 outputs2;
};

#if __CUDA_ARCH__ >= 800

template <class E> __device__ __forceinline__ void nativeRound(const NativeRoundParams &p) {
  enterKernel();
  const int inputs = (int)p.inputs, pitch = (int)p.pitch, eights = pitch / 8;
  const bool wide = ((size_t)p.x | (size_t)p.xStride * 4) % 16 == 0;
  bool overflowed = false;
  for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < p.rows * eights; e += (i64)gridDim.x * blockDim.x) {
    const i64 row = e / eights;
    const int k = (int)(e % eights) * 8;
    const float *from = p.x + row * p.xStride + k;
    float v[8];
    if (wide && k + 8 <= inputs) {
      const float4 a = *reinterpret_cast<const float4 *>(from), b = *reinterpret_cast<const float4 *>(from + 4);
      v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = k + i < inputs ? from[i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) overflowed |= overflows<E>(v[i]);
    *reinterpret_cast<uint4 *>((u16 *)p.rounded + row * pitch + k) =
        make_uint4(roundedPair<E>(v[0], v[1]), roundedPair<E>(v[2], v[3]), roundedPair<E>(v[4], v[5]), roundedPair<E>(v[6], v[7]));
  }
  if (overflowed) fail(p.status, activationOverflow);
}

// A warp holds 16 * I rows and 8 * J columns; warpsY x warpsX of them a tile. A stage holds `stageInputs` inputs.
template <class E, int warpsY, int warpsX, int I, int J, int stageInputs, int depth>
__device__ __forceinline__ void nativeStages(const NativeStagesParams &p) {
  constexpr int threads = 32 * warpsX * warpsY, tileRows = 16 * I * warpsY, tileColumns = 8 * J * warpsX;
  constexpr int xWidth = stageInputs + padding, wWidth = tileColumns + padding; // of halves
  constexpr int xHalves = tileRows * xWidth, stageHalves = xHalves + stageInputs * wWidth;
  constexpr int xPieces = stageInputs / 8, wPieces = tileColumns / 8; // of 16 bytes, of a row
  constexpr int xCopies = tileRows * xPieces / threads, wAll = stageInputs * wPieces;
  constexpr int wCopies = (wAll + threads - 1) / threads;
  static_assert(tileRows * xPieces % threads == 0, "every thread copies as much");
  extern __shared__ __align__(16) u16 stages[]; // [depth][xHalves, then wWidth * stageInputs]
  enterKernel();
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, warpX = warp % warpsX, warpY = warp / warpsX;
  const int which = blockIdx.z;
  const int outputs = (int)(which == 0 ? p.outputs0 : which == 1 ? p.outputs1 : p.outputs2);
  const int firstRow = blockIdx.x * tileRows, firstColumn = blockIdx.y * tileColumns;
  if (firstColumn >= outputs) return;
  const u16 *matrix = (const u16 *)(which == 0 ? p.matrix0 : which == 1 ? p.matrix1 : p.matrix2);
  float *out = which == 0 ? p.out0 : which == 1 ? p.out1 : p.out2;
  const float *bias = which == 0 ? p.bias0 : which == 1 ? p.bias1 : p.bias2;
  const float *residual = which == 0 ? p.residual0 : which == 1 ? p.residual1 : p.residual2;
  const int rows = (int)p.rows, inputs = (int)p.inputs, steps = (inputs + stageInputs - 1) / stageInputs;
  const int outStride = (int)p.outStride, rowStride = (int)p.rowStride, xPitch = (int)p.xPitch;

  // What this thread copies of each stage.
  int xFrom[xCopies], wFrom[wCopies], wCount[wCopies];
#pragma unroll
  for (int l = 0; l < xCopies; l++) {
    const int e = tid + l * threads, row = firstRow + e / xPieces;
    xFrom[l] = row < rows ? row * xPitch + e % xPieces * 8 : -1;
  }
#pragma unroll
  for (int l = 0; l < wCopies; l++) {
    const int e = tid + l * threads, column = firstColumn + e % wPieces * 8;
    wFrom[l] = e / wPieces * rowStride + column;
    wCount[l] = min(16, max(0, (outputs - column) * 2));
  }
  const u16 *x = (const u16 *)p.x, *w = matrix;
  int from = 0;
  u16 *target = stages;
  auto issue = [&]() {
#pragma unroll
    for (int l = 0; l < xCopies; l++) {
      const int e = tid + l * threads;
      const bool there = xFrom[l] >= 0 && from + e % xPieces * 8 < xPitch;
      copyAside(target + e / xPieces * xWidth + e % xPieces * 8, there ? x + xFrom[l] : (const u16 *)p.x, there ? 16 : 0);
    }
#pragma unroll
    for (int l = 0; l < wCopies; l++) {
      const int e = tid + l * threads, byteLength = from + e / wPieces < inputs ? wCount[l] : 0;
      if (wAll % threads != 0 && e >= wAll) break;
      copyAside(target + xHalves + e / wPieces * wWidth + e % wPieces * 8, byteLength > 0 ? w + wFrom[l] : matrix, byteLength);
    }
    x += stageInputs;
    w += (i64)stageInputs * rowStride;
    from += stageInputs;
    target = target == stages + (depth - 1) * stageHalves ? stages : target + stageHalves;
  };
#pragma unroll
  for (int stage = 0; stage < depth - 1; stage++) {
    if (stage < steps) issue();
    endCopyGroup();
  }

  float sums[I][J][4];
  const int ownRow = firstRow + warpY * (16 * I) + lane / 4, ownColumn = firstColumn + warpX * (8 * J) + lane % 4 * 2;
  const bool paired = ((size_t)out | (size_t)outStride * 4) % 8 == 0;
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++)
#pragma unroll
      for (int c = 0; c < 4; c++) {
        const int row = ownRow + i * 16 + c / 2 * 8, column = ownColumn + j * 8 + c % 2;
        sums[i][j][c] = p.continues && row < rows && column < outputs ? out[(i64)row * outStride + column] : 0.0f;
      }

  const u16 *stage = stages;
  const int xAt = (warpY * (16 * I) + lane % 16) * xWidth + lane / 16 * 8;
  const int wAt = xHalves + (lane / 8 % 2 * 8 + lane % 8) * wWidth + warpX * (8 * J) + lane / 16 * 8;
  u32 a[2][I][4], b[2][(J + 1) / 2][4];
  auto load = [&](int slot, int k) {
#pragma unroll
    for (int i = 0; i < I; i++) loadMatrices<false>(a[slot][i], stage + xAt + i * 16 * xWidth + k);
#pragma unroll
    for (int j = 0; j + 1 < J; j += 2) loadMatrices<true>(b[slot][j / 2], stage + wAt + k * wWidth + j * 8);
    if constexpr (J % 2 == 1) loadHalfTransposed(b[slot][J / 2], stage + wAt + k * wWidth + (J - 1) * 8 - lane / 16 * 8);
  };
  for (int step = 0; step < steps; step++) {
    awaitCopyGroups<depth - 2>();
    __syncthreads(); // other threads' copies have landed, and all have read the stage that is copied to next
    load(0, 0);
    if (step + depth - 1 < steps) issue();
    endCopyGroup();
#pragma unroll
    for (int k = 0; k < stageInputs; k += 16) {
      const int slot = k / 16 % 2;
      if (k + 16 < stageInputs) load(slot ^ 1, k + 16);
#pragma unroll
      for (int j = 0; j < J; j++)
#pragma unroll
        for (int i = 0; i < I; i++)
          multiply<E>(sums[i][j], a[slot][i], b[slot][j / 2][j % 2 * 2], b[slot][j / 2][j % 2 * 2 + 1]);
    }
    stage = stage == stages + (depth - 1) * stageHalves ? stages : stage + stageHalves;
  }

#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = ownRow + i * 16 + half * 8, column = ownColumn + j * 8;
        if (row >= rows || column >= outputs) continue;
        const i64 at = (i64)row * outStride + column;
        float y[2];
#pragma unroll
        for (int c = 0; c < 2; c++) {
          y[c] = sums[i][j][half * 2 + c];
          if (column + c >= outputs) continue;
          if (bias) y[c] = y[c] + bias[column + c];
          if (residual) y[c] = y[c] + residual[at + c];
          if (p.activation >= 0) y[c] = thresholded((int)p.activation, y[c], (float)p.threshold);
        }
        if (paired && column + 1 < outputs) {
          *reinterpret_cast<float2 *>(out + at) = make_float2(y[0], y[1]);
        } else {
          out[at] = y[0];
          if (column + 1 < outputs) out[at + 1] = y[1];
        }
      }
}

#else

template <class E> __device__ __forceinline__ void nativeRound(const NativeRoundParams &) {}
template <class E, int warpsY, int warpsX, int I, int J, int stageInputs, int depth>
__device__ __forceinline__ void nativeStages(const NativeStagesParams &) {}

#endif

#define NATIVE_ROUND(type, E)                                                                                          \
  extern "C" __global__ void __launch_bounds__(256) native_round_##type##_inputs(const NativeRoundParams p) { nativeRound<E>(p); }
// Tiles of M x N outputs; src/backend/cuda/plan-native-stages.ts chooses among them.
#define NATIVE_STAGES(type, E, M, N, warpsY, warpsX, I, J, stageInputs, depth)                                         \
  extern "C" __global__ void __launch_bounds__(32 * warpsY * warpsX)                                                   \
      native_stages_##type##_##M##x##N(const NativeStagesParams p) {                                                   \
    nativeStages<E, warpsY, warpsX, I, J, stageInputs, depth>(p);                                                      \
  }
#define NATIVE_STAGES_OF(type, E)                                                                                      \
  NATIVE_ROUND(type, E)                                                                                                \
  NATIVE_STAGES(type, E, 128, 256, 2, 4, 4, 8, 64, 4)                                                                  \
  NATIVE_STAGES(type, E, 128, 160, 2, 4, 4, 5, 64, 4)                                                                  \
  NATIVE_STAGES(type, E, 128, 128, 2, 4, 4, 4, 64, 4)                                                                  \
  NATIVE_STAGES(type, E, 128, 80, 4, 2, 2, 5, 64, 3)
NATIVE_STAGES_OF(WEIGHT_NAME, WEIGHT_TYPE)
