// What the products of 1 to 8 rows share: their parameters and what is done with a finished sum.
#pragma once
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
  i64 blocksPerRound; // of a cluster: of each of its blocks of threads
  // Of linear-stream.cu alone. What follows from others is worked out ahead: a division is slow where a kernel begins.
  i64 ranks;        // blocks of threads of a cluster, which share the inputs; 1 for none
  i64 share;        // columns that each of a cluster ends
  i64 rounds;       // of blocks of inputs
  i64 turnsOfRound; // of a warp
  i64 turnsOfTile;  // of all warps, in a round
  i64 tiles; // of columns that a block of threads computes
  i64 depth; // chunks of weights of a warp that are on their way or in use: 2, 3, 4, 6, 8, 12 or 16
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

// The product of a block of threads.
struct Product {
  int which;
  const void *matrix;
  float *out;
  const float *bias;
  const float *residual;
  int outputs;
};

__device__ __forceinline__ Product productOf(const LinearRowsParams &p, int which) {
  return Product{which,
                 which == 0 ? p.matrix0 : which == 1 ? p.matrix1 : p.matrix2,
                 which == 0 ? p.out0 : which == 1 ? p.out1 : p.out2,
                 which == 0 ? p.bias0 : which == 1 ? p.bias1 : p.bias2,
                 which == 0 ? p.residual0 : nullptr,
                 (int)(which == 0 ? p.outputs0 : which == 1 ? p.outputs1 : p.outputs2)};
}

// What ends an output beside its sum. It is far away, so it is asked for early.
struct OutputEnd {
  float bias, residual;
  int slot, position; // of the store
};

__device__ __forceinline__ OutputEnd outputEnd(const LinearRowsParams &p, const Product &product, int row, int column) {
  OutputEnd end = {0.0f, 0.0f, 0, 0};
  if (row >= (int)p.rows || column >= product.outputs) return end;
  if (product.bias) end.bias = product.bias[column];
  if (product.residual) end.residual = product.residual[row * p.outStride + column];
  if (p.store >= 0 && product.which > 0) {
    end.slot = p.positions[2 * row];
    end.position = p.positions[2 * row + 1];
  }
  return end;
}

template <class E>
__device__ __forceinline__ void storeCache(const LinearRowsParams &p, const Product &product, const OutputEnd &end,
                                           int column, float y) {
  typedef typename E::Stored Stored;
  const i64 element = (i64)end.slot * product.outputs + column; // (slot, head, i): a slot holds `outputs` a position
  const Stored stored = narrowKv<E>(y, p.status);
  if (product.which == 1) ((Stored *)p.keyCache)[element * p.capacity + end.position] = stored;
  else ((Stored *)p.valueCache)[(element / p.headDim * p.capacity + end.position) * p.headDim + element % p.headDim] = stored;
}

// Row and column among `columns` of R rows.
template <int R> __device__ __forceinline__ int rowOf(int o, int columns) { return R == 1 ? 0 : o / columns; }

// Adds block sums to what there is of outputs [firstColumn, firstColumn + columns) of `R` rows, before `outputs`, in ascending
// order, and ends the outputs with the last of them. `end` is that of the thread's first output. All threads of the block call
// it, with a barrier in front.
template <int R>
__device__ __forceinline__ void addBlockSums(const LinearRowsParams &p, const Product &product, const float *partial,
                                             float *sums, int firstColumn, int columns, int outputs, int blocks, bool first,
                                             bool last, OutputEnd end) {
  const int rows = (int)p.rows;
  for (int o = threadIdx.x; o < R * columns; o += blockDim.x) {
    const int r = rowOf<R>(o, columns), target = firstColumn + o - r * columns;
    if (o != threadIdx.x) end = outputEnd(p, product, r, target);
    if (r >= rows || target >= outputs) continue;
    const i64 at = r * p.outStride + target;
    float y = !first ? sums[o] : p.continues ? product.out[at] : 0.0f;
#pragma unroll 20
    for (int block = 0; block < blocks; block++) y = y + partial[block * R * columns + o];
    if (!last) {
      sums[o] = y;
      continue;
    }
    if (product.bias) y = y + end.bias;
    if (product.residual) y = y + end.residual;
    if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
    product.out[at] = y;
    if (p.store >= 0 && product.which > 0) {
      if (p.store == 0) storeCache<F32>(p, product, end, target, y);
      else storeCache<F16>(p, product, end, target, y);
    }
  }
}
