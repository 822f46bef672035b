// y = W x + b for 1 to 8 rows, where every row of the matrix begins at a multiple of 16 bytes. Each warp streams the
// weights that its own lanes use through a ring in shared memory, so that many bytes are on their way with few registers
// and few threads: a product of 2560 x 2560 weights has no more than 50 blocks of 128 inputs for each multiprocessor of
// an H200. Nothing in the ring depends on another kernel, so it fills before the inputs are there. A norm in front, an
// activation behind and the store of keys and values can be part of the kernel.
#include "cluster.cuh"
#include "linear-rows.cuh"
#include "memory.cuh"
#include "norms.cuh"

constexpr int chunkRows = 8, chunks = blockInputs / chunkRows;
// Gammas and betas of a norm that a thread fetches before the inputs are there.
constexpr int normedAhead = 8;

// The products of one block of inputs with the columns of a lane, C of them, as their weights come.
template <class E, int R, int C> struct BlockSweep {
  const float *own; // inputs, of row r at r * xFloats
  int xFloats;
  int total; // steps
  const char *stageEnd;

  // `newest`: depth - 2 groups of copies may be under way when the oldest has landed.
  template <int newest, class Issue>
  __device__ __forceinline__ void run(float (&acc)[R][C], const char *&stage, int &step, const Issue &issue) const {
    typedef typename E::Stored Stored;
    constexpr int rowBytes = 32 * C * (int)sizeof(Stored), chunkBytes = chunkRows * rowBytes;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
      awaitCopyGroups<newest>();
      __syncwarp(); // other lanes' copies have landed, and all lanes have read the chunk before
      if (step + (newest + 1) < total) issue(step + (newest + 1));
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
      if (stage == stageEnd) stage -= (newest + 2) * chunkBytes;
    }
  }
};

// A group of `lanes` lanes owns lanes * C adjacent columns (a tile) of one block of 128 inputs; a warp takes that of 32 /
// lanes neighbouring blocks at a time, in chunks of 8 inputs. Where columns are few, a cluster of blocks of threads shares the
// inputs: sums of blocks go to the one that ends their columns.
template <class E, int R, int lanes, int C> __device__ __forceinline__ void linearStream(const LinearRowsParams &p) {
  typedef typename E::Stored Stored;
  constexpr int size = sizeof(Stored), tileColumns = lanes * C, groups = 32 / lanes;
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
  const ClusterPlace place = joinCluster((int)p.ranks);
  const int columns = tiles * tileColumns, firstColumn = place.group * columns;
  if (firstColumn >= product.outputs) { // of a product narrower than the widest
    awaitPredecessor();
    return;
  }
  // The blocks of inputs of this block of threads: of a cluster's, those of one round.
  const int firstBlock = min(blocks, place.rank * blocksPerRound);
  const int lastBlock = place.ranks > 1 ? min(blocks, firstBlock + blocksPerRound) : blocks;
  char *ring = (char *)shared + warp * depth * chunkBytes; // [depth][8 inputs][32 lanes][C] stored, of this warp
  float *x = shared + warps * depth * (chunkBytes / 4);    // [R][blocksPerRound, padded]; with a norm all blocks
  const int xFloats = (p.norm >= 0 ? blocks : blocksPerRound) * paddedBlock;
  float *partial = x + R * xFloats; // [blocksPerRound][R][columns]; of a cluster [blocks][R][share]
  const int share = (int)p.share;
  float *sums = partial + (place.ranks > 1 ? blocks * share : blocksPerRound * columns) * R; // as wide; those of a norm, too

  // Every warp takes equally many turns, of a tile and 32 / lanes blocks; some at the end of a round are empty.
  const int turnsOfTile = (int)p.turnsOfTile, turnsOfRound = (int)p.turnsOfRound, rounds = (int)p.rounds;
  const int total = rounds * turnsOfRound * chunks;
  struct Turn {
    int tile, work;
  };
  const auto turnOf = [&](int turn) { // without a division: tiles are few
    Turn found = {0, turn * warps + warp};
    while (found.tile < tiles && found.work >= turnsOfTile) {
      found.tile++;
      found.work -= turnsOfTile;
    }
    return found;
  };

  // The lane's pieces of a chunk lie in one column of pieces, rowsPerCopy inputs apart.
  const int pieceBytes = lane % pieces * 16, copyRow = lane / pieces;
  const int copyGroup = pieceBytes / (tileColumns * size), copyOffset = pieceBytes % (tileColumns * size);
  const i64 strideBytes = p.rowStride * size;
  const char *matrix = (const char *)product.matrix;
  const char *source = matrix;
  int sourceBytes = 0, rowsLeft = 0, nextTurn = 0, nextBegin = firstBlock;
  char *target = ring + lane * 16, *const ringEnd = target + depth * chunkBytes;
  auto issue = [&](int step) {
    if (step % chunks == 0) {
      const Turn turn = turnOf(nextTurn);
      const int inRound = turn.work * groups + copyGroup;
      const int row = (nextBegin + inRound) * blockInputs + copyRow;
      const int columnBytes = (firstColumn + turn.tile * tileColumns) * size + copyOffset;
      const bool taken = turn.tile < tiles && inRound < min(blocksPerRound, lastBlock - nextBegin);
      if (++nextTurn == turnsOfRound) {
        nextTurn = 0;
        nextBegin += blocksPerRound;
      }
      sourceBytes = taken ? min(16, max(0, product.outputs * size - columnBytes)) : 0;
      source = matrix + row * strideBytes + columnBytes;
      rowsLeft = inputs - row;
    }
    // What no lane takes is not read either, so nothing need be there.
    if (sourceBytes == 16 && rowsLeft > (copies - 1) * rowsPerCopy) {
#pragma unroll
      for (int k = 0; k < copies; k++) copyWhole(target + k * 512, source + (u64)(u32)(k * rowsPerCopy) * (u32)strideBytes);
    } else if (sourceBytes > 0) {
#pragma unroll 1
      for (int k = 0; k < copies; k++) {
        const int byteLength = k * rowsPerCopy < rowsLeft ? sourceBytes : 0;
        copyAside(target + k * 512, byteLength > 0 ? source + k * rowsPerCopy * strideBytes : matrix, byteLength);
      }
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
  const int normBegin = firstBlock * blockInputs, normEnd = min(inputs, lastBlock * blockInputs);
  float gammas[normedAhead], betas[normedAhead];
  if (R <= 2 && p.norm >= 0) {
#pragma unroll
    for (int k = 0; k < normedAhead; k++) {
      const int i = normBegin + threadIdx.x + k * blockDim.x;
      gammas[k] = p.gamma && i < normEnd ? p.gamma[i] : 0.0f;
      betas[k] = p.beta && i < normEnd ? p.beta[i] : 0.0f;
    }
  }
  awaitPredecessor();
#if __CUDA_ARCH__ >= 900
  if (place.ranks > 1) clusterWait(); // all its blocks of threads have begun, so they may be written to
#endif

  const int endColumn = firstColumn + place.rank * share, endColumns = place.ranks > 1 ? share : columns;
  const int endRow = rowOf<R>(threadIdx.x, endColumns);
  OutputEnd end = {0.0f, 0.0f, 0, 0};
  if ((int)threadIdx.x < R * endColumns)
    end = outputEnd(p, product, endRow, endColumn + (int)threadIdx.x - endRow * endColumns);
  const int group = lane / lanes, groupLane = lane % lanes;
  const char *stage = ring + lane * (C * size), *const stageEnd = stage + depth * chunkBytes;
  int step = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const int begin = firstBlock + round * blocksPerRound, count = min(blocksPerRound, lastBlock - begin);
    const int loadBegin = p.norm >= 0 ? 0 : begin; // a norm takes in all inputs
    loadPaddedRows(x, xFloats, R, p.x + loadBegin * blockInputs, p.xStride, rows,
                   min(inputs - loadBegin * blockInputs, (p.norm >= 0 ? blocks : count) * blockInputs));
    __syncthreads();
    if (R <= 2 && p.norm >= 0) { // all blocks are in one round then; of more rows it is a kernel of its own
      const bool rms = p.norm == 1;
      for (int r = 0; r < rows; r++) {
        float *row = x + r * xFloats;
        const NormScale scale = normScale(row, sums, inputs, rms, (float)p.epsilon);
        const auto put = [&](int i, float y) {
          row[paddedIndex(i)] = y;
          if (firstColumn == 0 && blockIdx.y == 0) p.normOut[(i64)r * inputs + i] = y;
        };
#pragma unroll
        for (int k = 0; k < normedAhead; k++) {
          const int i = normBegin + threadIdx.x + k * blockDim.x;
          if (i >= normEnd) break;
          float y = (rms ? row[paddedIndex(i)] : row[paddedIndex(i)] - scale.mean) * scale.r;
          if (p.gamma) y = y * gammas[k];
          if (p.beta) y = y + betas[k];
          put(i, y);
        }
#pragma unroll 4
        for (int i = normBegin + threadIdx.x + normedAhead * blockDim.x; i < normEnd; i += blockDim.x)
          put(i, normed(row[paddedIndex(i)], scale, rms, p.gamma, p.beta, i));
      }
      __syncthreads();
    }
#pragma unroll 1
    for (int turn = 0; turn < turnsOfRound; turn++) {
      const Turn own = turnOf(turn);
      const int tile = own.tile, inRound = own.work * groups + group;
      const bool taken = tile < tiles && inRound < count;
      const float *inputsOf = x + (taken ? begin - loadBegin + inRound : 0) * paddedBlock;
      // Of the cluster, the block of threads that ends the lane's first column, and where among its columns.
      int owner = 0, offset = tile * tileColumns + groupLane * C;
      if (place.ranks > 1) {
        owner = offset / share;
        offset -= owner * share;
      }
      float acc[R][C];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
      const BlockSweep<E, R, C> sweep{inputsOf, xFloats, total, stageEnd};
      // A loop for each depth: a wait for so many groups names their number in its instruction.
      if (depth == 16) sweep.template run<14>(acc, stage, step, issue);
      else if (depth == 12) sweep.template run<10>(acc, stage, step, issue);
      else if (depth == 8) sweep.template run<6>(acc, stage, step, issue);
      else if (depth == 6) sweep.template run<4>(acc, stage, step, issue);
      else if (depth == 4) sweep.template run<2>(acc, stage, step, issue);
      else if (depth == 3) sweep.template run<1>(acc, stage, step, issue);
      else sweep.template run<0>(acc, stage, step, issue);
#if __CUDA_ARCH__ >= 900
      if (place.ranks > 1) {
        if (!taken) continue;
#pragma unroll
        for (int c = 0; c < C; c++) {
#pragma unroll
          for (int r = 0; r < R; r++)
            storeRemote(partial + ((begin + inRound) * R + r) * share + offset, owner, acc[r][c]);
          if (++offset == share) {
            offset = 0;
            owner++;
          }
        }
        continue;
      }
#endif
      if (taken) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int c = 0; c < C; c++)
            partial[(inRound * R + r) * columns + tile * tileColumns + groupLane * C + c] = acc[r][c];
      }
    }
#if __CUDA_ARCH__ >= 900
    if (place.ranks > 1) {
      clusterArrive();
      clusterWait();
      addBlockSums<R>(p, product, partial, sums, endColumn, endColumns, min(product.outputs, firstColumn + columns), blocks,
                      true, true, end);
      return;
    }
#endif
    __syncthreads();
    addBlockSums<R>(p, product, partial, sums, endColumn, endColumns, product.outputs, count, round == 0,
                    round + 1 == rounds, end);
    if (round + 1 < rounds) __syncthreads();
  }
}

#define LINEAR_STREAM(type, E, R)                                                                                      \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640, 1)                                                  \
      linear_stream_##type##_r##R##_16x2(const LinearRowsParams p) {                                                   \
    linearStream<E, R, 16, 2>(p);                                                                                      \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(R == 8 ? 384 : 640, 1)                                                  \
      linear_stream_##type##_r##R##_16x4(const LinearRowsParams p) {                                                   \
    linearStream<E, R, 16, 4>(p);                                                                                      \
  }
#define LINEAR_STREAM_OF(type, E)                                                                                      \
  LINEAR_STREAM(type, E, 1) LINEAR_STREAM(type, E, 2) LINEAR_STREAM(type, E, 4) LINEAR_STREAM(type, E, 8)
LINEAR_STREAM_OF(WEIGHT_NAME, WEIGHT_TYPE)
