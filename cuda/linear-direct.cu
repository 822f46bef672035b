// y = W x + b for 1 or 2 rows, where every row of the matrix begins at a multiple of 16 bytes and all inputs fit in shared
// memory. Weights pass from memory to registers alone: a lane owns the columns of 16 bytes and takes whole blocks of 128
// inputs, with one batch of loads on its way while the batch in front of it is used. Nothing that the first two batches read
// depends on another kernel, so they are asked for before the inputs are there.
#include "linear-rows.cuh"
#include "norms.cuh"

// 16 bytes that are read once: they take no room in the first-level cache. Volatile, so that batches stay in their order.
template <class E, int C> __device__ __forceinline__ Packed<E, C> loadOnce(const char *from) {
  uint4 bits;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(from));
  Packed<E, C> pieces;
  if constexpr (sizeof(typename E::Stored) == 2) pieces.a = bits;
  else
    pieces.a = make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w));
  return pieces;
}

// `lanes` lanes side by side read `lanes` * 16 bytes of a row of the matrix; neighbouring groups of lanes have neighbouring
// blocks of inputs. A batch has U inputs.
template <class E, int R, int lanes, int U> __device__ __forceinline__ void linearDirect(const LinearRowsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int C = 16 / sizeof(Stored), columns = lanes * C, batches = blockInputs / U;
  static_assert(U % 4 == 0 && batches % 2 == 0, "two batches take turns");
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  const Product product = productOf(p, blockIdx.y);
  const int rows = (int)p.rows, inputs = (int)p.inputs, blocks = (inputs + blockInputs - 1) / blockInputs;
  const int groups = blockDim.x / lanes, group = threadIdx.x / lanes, own = threadIdx.x % lanes * C;
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
  const char *from = (const char *)product.matrix + (i64)group * blockInputs * strideBytes + (i64)column * sizeof(Stored);
  const bool wide = column + C <= product.outputs;
  Packed<E, C> first[U], second[U];
  auto load = [&](Packed<E, C>(&batch)[U], int index) {
    const char *at = from + index * U * strideBytes;
#pragma unroll
    for (int u = 0; u < U; u++) batch[u] = loadOnce<E, C>(at + u * strideBytes);
  };
  const bool whole = wide && (group + 1) * blockInputs <= inputs;
  if (whole) {
    load(first, 0);
    load(second, 1);
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
    if (wide && (block + 1) * blockInputs <= inputs) {
      if (block != group) {
        load(first, 0);
        load(second, 1);
      }
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
        use(first, index);
        if (index + 2 < batches) load(first, index + 2);
        use(second, index + 1);
        if (index + 3 < batches) load(second, index + 3);
      }
    } else {
      const int present = min(blockInputs, inputs - block * blockInputs);
      for (int i = 0; i < present; i++)
#pragma unroll
        for (int c = 0; c < C; c++) {
          if (column + c >= product.outputs) continue;
          const float weight = widen<E>(((const Stored *)(from + i * strideBytes))[c]);
#pragma unroll
          for (int r = 0; r < R; r++) acc[r][c] = acc[r][c] + values[r * xFloats + i] * weight;
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c += 4)
        *reinterpret_cast<float4 *>(partial + (block * R + r) * columns + own + c) =
            make_float4(acc[r][c], acc[r][c + 1], acc[r][c + 2], acc[r][c + 3]);
    from += (i64)groups * blockInputs * strideBytes;
  }
  __syncthreads();
  addBlockSums<R>(p, product, partial, sums, firstColumn, columns, blocks, true, true);
}

#define LINEAR_DIRECT(type, E, R, lanes, U)                                                                            \
  extern "C" __global__ void __launch_bounds__(320, 1) linear_direct_##type##_r##R##_##lanes##x##U(const LinearRowsParams p) { \
    linearDirect<E, R, lanes, U>(p);                                                                                   \
  }
#define LINEAR_DIRECT_OF(type, E)                                                                                      \
  LINEAR_DIRECT(type, E, 1, 4, 8) LINEAR_DIRECT(type, E, 1, 4, 16) LINEAR_DIRECT(type, E, 1, 8, 8)                     \
  LINEAR_DIRECT(type, E, 1, 8, 16) LINEAR_DIRECT(type, E, 2, 4, 8) LINEAR_DIRECT(type, E, 2, 4, 16)                    \
  LINEAR_DIRECT(type, E, 2, 8, 8) LINEAR_DIRECT(type, E, 2, 8, 16)
LINEAR_DIRECT_OF(WEIGHT_NAME, WEIGHT_TYPE)
