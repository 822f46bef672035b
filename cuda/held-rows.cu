// Products over active rows of which some lie in places on the device and the others in mapped host memory. Rows that have
// got a place are written there on the way, so that nothing is moved ahead and nothing waits for the host.
#include "active-direct.cuh"
#include "output-rows.cuh"

struct HeldInputsParams {
  i64 rows;
  const float *x; // [rows, width]
  i64 width;
  u32 *active; // the set, written by one more block of threads than the columns need; 0: it is there already
  u32 *hits;   // where the set is written: how many of it have a place
  const u32 *placeOf;
  void *held; // row = place
  const void *matrix; // row = neuron
  i64 rowStride;
  i64 outputs;
  float *out;
  const float *bias;
  const float *residual;
  i64 blocksPerRound;
};

// A set, and how many of its neurons have a place, by one block of threads.
__device__ __forceinline__ void compactHeld(const HeldInputsParams &p, u32 *room) {
  compactColumns(p.x, (int)p.rows, (int)p.width, p.active, room);
  __syncthreads();
  const u32 count = p.active[0];
  u32 own = 0;
  for (u32 at = threadIdx.x; at < count; at += blockDim.x) own += p.placeOf[p.active[1 + at]] != 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) own += __shfl_down_sync(0xffffffffu, own, distance);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  u32 all = 0;
  for (u32 warp = 0; warp < blockDim.x / 32; warp++) all += room[warp];
  p.hits[0] = all;
}

// More rows have fewer weights on their way than in activeDirect: the words of places take registers, too.
template <class E, int R, int lanes, int C> __device__ __forceinline__ void heldInputs(const HeldInputsParams &p) {
  extern __shared__ __align__(16) float shared[];
  enterKernel();
  if (p.active && blockIdx.x + 1 == gridDim.x) {
    compactHeld(p, (u32 *)shared);
    return;
  }
  ActiveDirectParams product = {};
  product.rows = p.rows;
  product.x = p.x;
  product.width = p.width;
  product.matrix = p.matrix;
  product.rowStride = p.rowStride;
  product.outputs = p.outputs;
  product.out = p.out;
  product.bias = p.bias;
  product.residual = p.residual;
  product.blocksPerRound = p.blocksPerRound;
  const RowsInPlaces<E> places = {p.placeOf, (typename E::Stored *)p.held, p.rowStride};
  activeColumns<E, R, lanes, C, R == 1 ? 8 : R == 2 ? 4 : 2>(product, places);
}

struct HeldOutputsParams {
  i64 rows;
  const float *x;
  i64 inputs;
  const u32 *active;
  const u32 *placeOf;
  void *held; // row = place
  const void *matrix; // output-major, row = neuron
  i64 rowStride;
  float *out;
  i64 outStride;
  const float *bias;
  i64 blocksPerRound;
};

// Over a whole set.
template <class E, int R> __device__ __forceinline__ void heldOutputs(const HeldOutputsParams &p) {
  OutputRowsParams product = {};
  product.rows = p.rows;
  product.x = p.x;
  product.xStride = p.inputs;
  product.inputs = p.inputs;
  product.matrix = p.matrix;
  product.rowStride = p.rowStride;
  product.active = p.active;
  product.listEnd = -1;
  product.out = p.out;
  product.outStride = p.outStride;
  product.bias = p.bias;
  product.activation = -1;
  product.blocksPerRound = p.blocksPerRound;
  const RowsInPlaces<E> places = {p.placeOf, (typename E::Stored *)p.held, p.rowStride};
  outputRows<E, R>(product, places);
}

#define HELD_ROWS(type, E, R, threads)                                                                                 \
  extern "C" __global__ void __launch_bounds__(threads, 1) held_inputs_##type##_r##R##_16B(const HeldInputsParams p) { \
    heldInputs<E, R, 8, 16 / (int)sizeof(E::Stored)>(p);                                                               \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(threads, 1) held_inputs_##type##_r##R##_1(const HeldInputsParams p) {   \
    heldInputs<E, R, 32, 1>(p);                                                                                        \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256, 1) held_outputs_##type##_r##R(const HeldOutputsParams p) {         \
    heldOutputs<E, R>(p);                                                                                              \
  }
#define HELD_ROWS_OF(type, E)                                                                                          \
  HELD_ROWS(type, E, 1, 640) HELD_ROWS(type, E, 2, 640) HELD_ROWS(type, E, 4, 640) HELD_ROWS(type, E, 8, 320)
HELD_ROWS_OF(WEIGHT_NAME, WEIGHT_TYPE)
