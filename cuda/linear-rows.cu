// y = W x + b for 1 to 8 rows of any matrix with inputs as rows: a warp owns 32 columns of one block of 128 inputs, one a
// lane, so that no address needs to be a multiple of more than an element. linear-stream.cu is the one for aligned rows.
#include "linear-rows.cuh"

template <class E, int R> __device__ __forceinline__ void linearRows(const LinearRowsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int columns = 32;
  constexpr int batch = 32; // loads in flight
  extern __shared__ __align__(16) float shared[];
  enterKernel();
  const Product product = productOf(p, blockIdx.y);
  const Stored *matrix = (const Stored *)product.matrix;
  const int rows = (int)p.rows, inputs = (int)p.inputs;
  const int firstColumn = blockIdx.x * columns;
  if (firstColumn >= product.outputs) return;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks = (inputs + blockInputs - 1) / blockInputs;
  const int blocksPerRound = (int)p.blocksPerRound;
  float *own = shared + warp * R * blockInputs;         // [R][128] of this warp
  float *partial = shared + warps * R * blockInputs;    // [blocksPerRound][R][32]
  float *sums = partial + blocksPerRound * R * columns; // [R][32], between rounds
  const int column = firstColumn + lane;
  const bool inside = column < product.outputs;

  for (int begin = 0; begin < blocks; begin += blocksPerRound) {
    const int end = min(blocks, begin + blocksPerRound);
    for (int block = begin + warp; block < end; block += warps) {
      const int from = block * blockInputs, count = min(blockInputs, inputs - from);
      const Stored *weights = matrix + (i64)from * p.rowStride + column;
      __syncwarp(); // the block before has been read
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int i = lane; i < blockInputs; i += 32)
          own[r * blockInputs + i] = r < rows && i < count ? p.x[r * p.xStride + from + i] : 0.0f;
      __syncwarp();
      float acc[R];
#pragma unroll
      for (int r = 0; r < R; r++) acc[r] = 0.0f;
      // Inputs past the end are zeros with weights of zero, which add nothing.
      for (int first = 0; first < count; first += batch) {
        Stored w[batch];
#pragma unroll
        for (int i = 0; i < batch; i++)
          w[i] = inside && first + i < count ? weights[(first + i) * p.rowStride] : (Stored)0;
#pragma unroll
        for (int i = 0; i < batch; i++) {
          const float weight = widen<E>(w[i]);
#pragma unroll
          for (int r = 0; r < R; r++) acc[r] = acc[r] + own[r * blockInputs + first + i] * weight;
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++) partial[((block - begin) * R + r) * columns + lane] = acc[r];
    }
    __syncthreads();
    const int r = rowOf<R>(threadIdx.x, columns);
    addBlockSums<R>(p, product, partial, sums, firstColumn, columns, product.outputs, end - begin, begin == 0, end == blocks,
                    outputEnd(p, product, r, firstColumn + (int)threadIdx.x - r * columns));
    if (end < blocks) __syncthreads();
  }
}

#define LINEAR_ROWS(type, E, R)                                                                                        \
  extern "C" __global__ void __launch_bounds__(640) linear_rows_##type##_r##R(const LinearRowsParams p) {              \
    linearRows<E, R>(p);                                                                                               \
  }
#define LINEAR_ROWS_OF(type, E)                                                                                        \
  LINEAR_ROWS(type, E, 1) LINEAR_ROWS(type, E, 2) LINEAR_ROWS(type, E, 4) LINEAR_ROWS(type, E, 8)
LINEAR_ROWS_OF(WEIGHT_NAME, WEIGHT_TYPE)
