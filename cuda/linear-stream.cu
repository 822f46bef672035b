// y = W x + b for 1 to 8 rows, where every row of the matrix begins at a multiple of 16 bytes. Each warp streams the
// weights that its own lanes use through a ring in shared memory, so that many bytes are on their way with few registers
// and few threads: a product of 2560 x 2560 weights has no more than 50 blocks of 128 inputs for each multiprocessor of
// an H200. Nothing in the ring depends on another kernel, so it fills before the inputs are there. A norm in front, an
// activation behind and the store of keys and values can be part of the kernel.
#include "linear-rows.cuh"
#include "memory.cuh"
#include "norms.cuh"

// A group of `lanes` lanes owns lanes * C adjacent columns (a tile) of one block of 128 inputs; a warp takes that of 32 /
// lanes neighbouring blocks at a time, in chunks of 8 inputs.
template <class E, int R, int lanes, int C> __device__ __forceinline__ void linearStream(const LinearRowsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int size = sizeof(Stored), tileColumns = lanes * C, groups = 32 / lanes;
  constexpr int chunkRows = 8, chunks = blockInputs / chunkRows;
  constexpr int rowBytes = 32 * C * size;             // of one input of each group, side by side
  constexpr int chunkBytes = chunkRows * rowBytes;    // of a warp
  constexpr int copies = chunkBytes / 512;            // of 16 bytes by each lane
  constexpr int pieces = rowBytes / 16;               // lanes that copy one input's weights
  constexpr int rowsPerCopy = 32 / pieces;
  static_assert(pieces <= 32 && tileColumns * size % 16 == 0, "a tile's row is copied in pieces of 16 bytes");
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  const Product product = productOf(p, blockIdx.y);
  const int rows = (int)p.rows, inputs = (int)p.inputs, depth = (int)p.depth, tiles = (int)p.tiles;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks = (inputs + blockInputs - 1) / blockInputs, blocksPerRound = (int)p.blocksPerRound;
  const int columns = tiles * tileColumns, firstColumn = blockIdx.x * columns;
  if (firstColumn >= product.outputs) { // of a product narrower than the widest
    awaitPredecessor();
    return;
  }
  char *ring = (char *)shared + warp * depth * chunkBytes; // [depth][8 inputs][32 lanes][C] stored, of this warp
  float *x = shared + warps * depth * (chunkBytes / 4);    // [R][blocksPerRound, padded]
  const int xFloats = blocksPerRound * paddedBlock;
  float *partial = x + R * xFloats;                        // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns;    // [R][columns] between rounds; a norm's block sums

  // Every warp takes equally many turns, of a tile and 32 / lanes blocks; some at the end of a round are empty.
  const int turnsOfTile = (blocksPerRound + groups - 1) / groups;
  const int turnsPerRound = (tiles * turnsOfTile + warps - 1) / warps;
  const int rounds = (blocks + blocksPerRound - 1) / blocksPerRound;
  const int total = rounds * turnsPerRound * chunks;

  // The lane's pieces of a chunk lie in one column of pieces, rowsPerCopy inputs apart.
  const int pieceBytes = lane % pieces * 16, copyRow = lane / pieces;
  const int copyGroup = pieceBytes / (tileColumns * size), copyOffset = pieceBytes % (tileColumns * size);
  const i64 strideBytes = p.rowStride * size;
  const char *matrix = (const char *)product.matrix;
  const char *source = matrix;
  int sourceBytes = 0, rowsLeft = 0;
  char *target = ring + lane * 16, *const ringEnd = target + depth * chunkBytes;
  auto issue = [&](int step) {
    if (step % chunks == 0) {
      const int turn = step / chunks, round = turn / turnsPerRound, work = turn % turnsPerRound * warps + warp;
      const int tile = work / turnsOfTile, inRound = work % turnsOfTile * groups + copyGroup;
      const int row = (round * blocksPerRound + inRound) * blockInputs + copyRow;
      const int columnBytes = (firstColumn + tile * tileColumns) * size + copyOffset;
      const bool taken = tile < tiles && inRound < blocksPerRound;
      sourceBytes = taken ? min(16, max(0, product.outputs * size - columnBytes)) : 0;
      source = matrix + row * strideBytes + columnBytes;
      rowsLeft = inputs - row;
    }
#pragma unroll
    for (int k = 0; k < copies; k++) {
      const int byteLength = k * rowsPerCopy < rowsLeft ? sourceBytes : 0;
      copyAside(target + k * 512, byteLength > 0 ? source + k * rowsPerCopy * strideBytes : matrix, byteLength);
    }
    source += chunkRows * strideBytes;
    rowsLeft -= chunkRows;
    target += chunkBytes;
    if (target == ringEnd) target -= depth * chunkBytes;
  };
#pragma unroll 1
  for (int step = 0; step < depth - 1; step++) {
    if (step < total) issue(step);
    endCopyGroup();
  }
  if (p.prefetchBytes > 0) prefetchBytes(matrix + blockIdx.x * p.prefetchBytes, p.prefetchBytes);
  if (p.norm >= 0 && blockIdx.x == 0 && blockIdx.y == 0) {
    prefetchFloats(p.gamma, inputs);
    prefetchFloats(p.beta, inputs);
  }
  awaitPredecessor();

  const int group = lane / lanes, groupLane = lane % lanes;
  const char *stage = ring + lane * (C * size), *const stageEnd = stage + depth * chunkBytes;
  int step = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const int begin = round * blocksPerRound, count = min(blocksPerRound, blocks - begin);
    loadPaddedRows(x, xFloats, R, p.x + begin * blockInputs, p.xStride, rows,
                   min(inputs - begin * blockInputs, count * blockInputs));
    __syncthreads();
    if (p.norm >= 0) { // all blocks are in one round then
      const bool rms = p.norm == 1;
      for (int r = 0; r < rows; r++) {
        float *row = x + r * xFloats;
        const NormScale scale = normScale(row, sums, inputs, rms, (float)p.epsilon);
#pragma unroll 4
        for (int i = threadIdx.x; i < inputs; i += blockDim.x) {
          const float y = normed(row[paddedIndex(i)], scale, rms, p.gamma, p.beta, i);
          row[paddedIndex(i)] = y;
          if (blockIdx.x == 0 && blockIdx.y == 0) p.normOut[(i64)r * inputs + i] = y;
        }
      }
      __syncthreads();
    }
#pragma unroll 1
    for (int turn = 0; turn < turnsPerRound; turn++) {
      const int work = turn * warps + warp;
      const int tile = work / turnsOfTile, inRound = work % turnsOfTile * groups + group;
      const bool taken = tile < tiles && inRound < count;
      const float *own = x + (taken ? inRound : 0) * paddedBlock;
      float acc[R][C];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk++) {
        awaitOldest(depth);
        __syncwarp(); // other lanes' copies have landed, and all lanes have read the chunk before
        if (step + depth - 1 < total) issue(step + depth - 1);
        endCopyGroup();
        Packed<E, C> w[chunkRows];
#pragma unroll
        for (int i = 0; i < chunkRows; i++) w[i] = loadPacked<E, C>((const Stored *)(stage + i * rowBytes));
#pragma unroll
        for (int i = 0; i < chunkRows; i += 4) {
          float4 four[R];
#pragma unroll
          for (int r = 0; r < R; r++)
            four[r] = *reinterpret_cast<const float4 *>(own + r * xFloats + chunk * chunkRows + i);
#pragma unroll
          for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < C; c++) {
              const float weight = w[i + j].at(c);
#pragma unroll
              for (int r = 0; r < R; r++) {
                const float value = j == 0 ? four[r].x : j == 1 ? four[r].y : j == 2 ? four[r].z : four[r].w;
                acc[r][c] = acc[r][c] + value * weight;
              }
            }
        }
        step++;
        stage += chunkBytes;
        if (stage == stageEnd) stage -= depth * chunkBytes;
      }
      if (taken) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int c = 0; c < C; c++)
            partial[(inRound * R + r) * columns + tile * tileColumns + groupLane * C + c] = acc[r][c];
      }
    }
    __syncthreads();
    addBlockSums<R>(p, product, partial, sums, firstColumn, columns, count, round == 0, round + 1 == rounds);
    if (round + 1 < rounds) __syncthreads();
  }
}

#define LINEAR_STREAM(type, E, R)                                                                                      \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640, 1)                                                     \
      linear_stream_##type##_r##R##_8x2(const LinearRowsParams p) {                                                    \
    linearStream<E, R, 8, 2>(p);                                                                                       \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640, 1)                                                     \
      linear_stream_##type##_r##R##_16x2(const LinearRowsParams p) {                                                   \
    linearStream<E, R, 16, 2>(p);                                                                                      \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640, 1)                                                     \
      linear_stream_##type##_r##R##_16x4(const LinearRowsParams p) {                                                   \
    linearStream<E, R, 16, 4>(p);                                                                                      \
  }
#define LINEAR_STREAM_OF(type, E)                                                                                      \
  LINEAR_STREAM(type, E, 1) LINEAR_STREAM(type, E, 2) LINEAR_STREAM(type, E, 4) LINEAR_STREAM(type, E, 8)
LINEAR_STREAM_OF(WEIGHT_NAME, WEIGHT_TYPE)
