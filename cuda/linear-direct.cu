// y = W x + b for one row, where every row of the matrix begins at a multiple of 16 bytes and all inputs fit in shared
// memory. Weights pass from memory to registers alone: a lane owns few columns, so that there are warps enough to hide what
// one of them waits for, and takes whole blocks of 128 inputs, with one batch of loads on its way while the batch in front
// of it is used. Nothing that the first two batches read depends on another kernel, so they are asked for before the inputs
// are there.
#include "linear-rows.cuh"
#include "norms.cuh"

// Read once: they take no room in the first-level cache. Volatile, so that batches stay in their order.
template <class E, int C> __device__ __forceinline__ Packed<E, C> loadOnce(const char *from) {
  constexpr int size = C * sizeof(typename E::Stored);
  Packed<E, C> pieces;
  if constexpr (size == 4) {
    u32 bits;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(bits) : "l"(from));
    if constexpr (C == 1) pieces.a = __uint_as_float(bits);
    else pieces.a = bits;
  } else {
    uint2 bits;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(bits.x), "=r"(bits.y) : "l"(from));
    if constexpr (C == 2) pieces.a = make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
    else pieces.a = bits;
  }
  return pieces;
}

// `lanes` lanes side by side read `bytes` each of a row of the matrix; neighbouring groups of lanes have neighbouring
// blocks of inputs. A batch has U inputs.
template <class E, int R, int lanes, int bytes, int U> __device__ __forceinline__ void linearDirect(const LinearRowsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int C = bytes / sizeof(Stored), columns = lanes * C, batches = blockInputs / U;
  static_assert(U % 4 == 0 && batches % 2 == 0, "two batches take turns");
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  const Product product = productOf(p, blockIdx.y);
  const int rows = (int)p.rows, inputs = (int)p.inputs, blocks = (inputs + blockInputs - 1) / blockInputs;
  const int groups = blockDim.x / lanes, own = threadIdx.x % lanes * C;
  // Threads beyond the last whole group have nothing to add up.
  const int group = threadIdx.x / lanes < groups ? threadIdx.x / lanes : blocks;
  const int firstColumn = blockIdx.x * columns, column = firstColumn + own;
  if (firstColumn >= product.outputs) { // of a product narrower than the widest
    awaitPredecessor();
    return;
  }
  const int xFloats = blocks * paddedBlock;
  float *x = shared;                                 // [R][blocks, padded]
  float *partial = x + R * xFloats;                  // [blocks][R][columns]
  float *sums = partial + blocks * R * columns;      // [max(R * columns, blocks)]
  float *scale = sums + max(R * columns, blocks);    // a norm's gamma and beta, [2][inputs]

  const i64 strideBytes = p.rowStride * sizeof(Stored);
  const char *const matrix = (const char *)product.matrix + (i64)column * sizeof(Stored);
  const bool wide = column + C <= product.outputs;
  auto whole = [&](int block) { return wide && (block + 1) * blockInputs <= inputs; };
  Packed<E, C> first[U], second[U];
  auto load = [&](Packed<E, C>(&batch)[U], int block, int index) {
    const char *at = matrix + ((i64)block * blockInputs + index * U) * strideBytes;
#pragma unroll
    for (int u = 0; u < U; u++) batch[u] = loadOnce<E, C>(at + u * strideBytes);
  };
  if (whole(group)) {
    load(first, group, 0);
    load(second, group, 1);
  }
  const bool scaled = p.norm >= 0;
  if (scaled) {
    for (int i = threadIdx.x; i < inputs; i += blockDim.x) {
      if (p.gamma) scale[i] = p.gamma[i];
      if (p.beta) scale[inputs + i] = p.beta[i];
    }
  }
  awaitPredecessor();
  loadPaddedRows(x, xFloats, R, p.x, p.xStride, rows, inputs);
  __syncthreads();
  if (scaled) {
    const bool rms = p.norm == 1, writes = blockIdx.x == 0 && blockIdx.y == 0;
    const float *gamma = p.gamma ? scale : nullptr, *beta = p.beta ? scale + inputs : nullptr;
    for (int r = 0; r < rows; r++) {
      float *row = x + r * xFloats;
      const NormScale of = normScale(row, sums, inputs, rms, (float)p.epsilon);
      for (int i = threadIdx.x; i < inputs; i += blockDim.x) {
        const float y = normed(row[paddedIndex(i)], of, rms, gamma, beta, i);
        row[paddedIndex(i)] = y;
        if (writes) p.normOut[(i64)r * inputs + i] = y;
      }
    }
    __syncthreads();
  }

#pragma unroll 1
  for (int block = group; block < blocks; block += groups) {
    const float *values = x + block * paddedBlock;
    float acc[R][C];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
    if (whole(block)) {
      const int next = whole(block + groups) ? block + groups : -1;
      auto use = [&](const Packed<E, C>(&batch)[U], int index) {
#pragma unroll
        for (int u = 0; u < U; u += 4) {
          float4 four[R];
#pragma unroll
          for (int r = 0; r < R; r++) four[r] = *reinterpret_cast<const float4 *>(values + r * xFloats + index * U + u);
#pragma unroll
          for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < C; c++) {
              const float weight = batch[u + j].at(c);
#pragma unroll
              for (int r = 0; r < R; r++) {
                const float value = j == 0 ? four[r].x : j == 1 ? four[r].y : j == 2 ? four[r].z : four[r].w;
                acc[r][c] = acc[r][c] + value * weight;
              }
            }
        }
      };
#pragma unroll 1
      for (int index = 0; index < batches; index += 2) {
        const bool last = index + 2 == batches;
        const int block1 = last ? next : block, index1 = last ? 0 : index + 2;
        use(first, index);
        if (block1 >= 0) load(first, block1, index1);
        use(second, index + 1);
        if (block1 >= 0) load(second, block1, index1 + 1);
      }
    } else {
      const int present = min(blockInputs, inputs - block * blockInputs);
      for (int i = 0; i < present; i++)
#pragma unroll
        for (int c = 0; c < C; c++) {
          if (column + c >= product.outputs) continue;
          const float weight = widen<E>(((const Stored *)(matrix + ((i64)block * blockInputs + i) * strideBytes))[c]);
#pragma unroll
          for (int r = 0; r < R; r++) acc[r][c] = acc[r][c] + values[r * xFloats + i] * weight;
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c++) partial[(block * R + r) * columns + own + c] = acc[r][c];
  }
  __syncthreads();
  addBlockSums<R>(p, product, partial, sums, firstColumn, columns, blocks, true, true);
}

#define LINEAR_DIRECT(type, E, R, lanes, bytes, U)                                                                     \
  extern "C" __global__ void __launch_bounds__(800, 1)                                                                 \
      linear_direct_##type##_r##R##_##lanes##x##bytes##x##U(const LinearRowsParams p) {                                \
    linearDirect<E, R, lanes, bytes, U>(p);                                                                            \
  }
#define LINEAR_DIRECT_OF(type, E)                                                                                      \
  LINEAR_DIRECT(type, E, 1, 16, 4, 16) LINEAR_DIRECT(type, E, 1, 32, 4, 16) LINEAR_DIRECT(type, E, 1, 40, 4, 16)
LINEAR_DIRECT_OF(WEIGHT_NAME, WEIGHT_TYPE)
