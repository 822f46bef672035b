// y = W x + b for 1 to 4 rows from quantised weights: a word holds the codes of 4 or 8 consecutive inputs of one output, a
// weight is code * scale, exactly. Words are read once and serve all rows. A group of `lanes` lanes owns lanes * C columns
// (a tile) of one block of 128 inputs; block sums meet in shared memory and are added there in ascending order.
#include "memory.cuh"
#include "norms.cuh"
#include "numbers.cuh"

struct QuantisedRowsParams {
  i64 rows;
  const float *x;
  i64 inputs;
  i64 blocksPerRound;
  i64 tiles; // of columns that a block of threads computes
  i64 depth; // chunks of words of a warp that are on their way or in use: 2, 3, 4, 6, 8, 12 or 16
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 threshold;
  // Up to three products of one x (query, key and value): blockIdx.y chooses.
  const u32 *codes0;
  const u16 *scales0;
  float *out0;
  const float *bias0;
  const float *residual0;
  i64 outputs0;
  const u32 *codes1;
  const u16 *scales1;
  float *out1;
  const float *bias1;
  i64 outputs1;
  const u32 *codes2;
  const u16 *scales2;
  float *out2;
  const float *bias2;
  i64 outputs2;
};

struct QuantisedProduct {
  const u32 *codes;
  const u16 *scales;
  float *out;
  const float *bias;
  const float *residual;
  int outputs;
};

__device__ __forceinline__ QuantisedProduct quantisedProductOf(const QuantisedRowsParams &p, int which) {
  return QuantisedProduct{which == 0 ? p.codes0 : which == 1 ? p.codes1 : p.codes2,
                          which == 0 ? p.scales0 : which == 1 ? p.scales1 : p.scales2,
                          which == 0 ? p.out0 : which == 1 ? p.out1 : p.out2,
                          which == 0 ? p.bias0 : which == 1 ? p.bias1 : p.bias2,
                          which == 0 ? p.residual0 : nullptr,
                          (int)(which == 0 ? p.outputs0 : which == 1 ? p.outputs1 : p.outputs2)};
}

// Adds the sums of `count` blocks to what there is of `columns` outputs of R rows, in ascending order, and ends the outputs
// with the last of them. All threads of the block call it, with a barrier in front.
template <int R>
__device__ __forceinline__ void addQuantisedSums(const QuantisedRowsParams &p, const QuantisedProduct &product,
                                                 const float *partial, float *sums, int firstColumn, int columns,
                                                 int count, bool first, bool last) {
  for (int o = threadIdx.x; o < R * columns; o += blockDim.x) {
    const int r = o / columns, target = firstColumn + o % columns;
    if (r >= (int)p.rows || target >= product.outputs) continue;
    const i64 at = (i64)r * product.outputs + target;
    // Asked for before the sum, which they wait behind.
    const float bias = last && product.bias ? product.bias[target] : 0.0f;
    const float residual = last && product.residual ? product.residual[at] : 0.0f;
    float y = first ? 0.0f : sums[o];
#pragma unroll 20
    for (int block = 0; block < count; block++) y = y + partial[block * R * columns + o];
    if (!last) {
      sums[o] = y;
      continue;
    }
    if (product.bias) y = y + bias;
    if (product.residual) y = y + residual;
    if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
    product.out[at] = y;
  }
}

__device__ __forceinline__ float scaleAt(u16 stored) { return __uint_as_float((u32)stored << 16); }

// A code c is stored as u = c + 2^(bits - 1) once its top bit is flipped. Put at bit p of the fraction of 1 it makes
// 1 + u * 2^(p - 23); one fused multiply-add then gives c * scale. Both its addend and its result are exact, because a scale
// has 8 bits: nothing is rounded that the contract does not round. Conversions of integers would take twice the time.
template <int bits> struct Decoder;
template <> struct Decoder<8> {
  float factor, addend;
  __device__ __forceinline__ void set(float scale) {
    factor = scale * 32768.0f;
    addend = -(scale * 32896.0f); // 2^15 + 2^7
  }
  __device__ __forceinline__ float weight(u32 word, int k, u32 oneBits) const {
    const float one = __uint_as_float(__byte_perm(word ^ 0x80808080u, oneBits, 0x7604 | k << 4));
    return __fmaf_rn(one, factor, addend);
  }
};
template <> struct Decoder<4> {
  float evenFactor, evenAddend, oddFactor, oddAddend;
  __device__ __forceinline__ void set(float scale) {
    evenFactor = scale * 32768.0f;
    evenAddend = -(scale * 32776.0f); // 2^15 + 2^3
    oddFactor = scale * 2048.0f;
    oddAddend = -(scale * 2056.0f); // 2^11 + 2^3
  }
  __device__ __forceinline__ float weight(u32 word, int k, u32) const {
    const u32 shifted = k < 2 ? word << 8 : word >> (k / 2 * 8 - 8);
    const bool odd = k % 2 == 1;
    const u32 mask = odd ? 0x0000f000u : 0x00000f00u, flip = odd ? 0x3f808000u : 0x3f800800u;
    u32 one; // (shifted & mask) ^ flip, which the compiler makes two instructions of
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(one) : "r"(shifted), "r"(mask), "r"(flip));
    return __fmaf_rn(__uint_as_float(one), odd ? oddFactor : evenFactor, odd ? oddAddend : evenAddend);
  }
};

template <int C> struct Words;
template <> struct Words<2> {
  uint2 a;
  __device__ __forceinline__ u32 at(int c) const { return c == 0 ? a.x : a.y; }
};
template <> struct Words<4> {
  uint4 a;
  __device__ __forceinline__ u32 at(int c) const { return c == 0 ? a.x : c == 1 ? a.y : c == 2 ? a.z : a.w; }
};

// The scales of C adjacent columns.
template <int C> struct Scales;
template <> struct Scales<2> {
  u32 a;
  __device__ __forceinline__ u32 pair(int) const { return a; }
};
template <> struct Scales<4> {
  uint2 a;
  __device__ __forceinline__ u32 pair(int c) const { return c < 2 ? a.x : a.y; }
};

// As `copyAside`, of 2 * C bytes: all of them or zeros.
template <int C> __device__ __forceinline__ void copyScalesAside(void *shared, const u16 *source, bool taken) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"((u32)__cvta_generic_to_shared(shared)),
               "l"(source), "n"(2 * C), "r"(taken ? 2 * C : 0)
               : "memory");
#else
  for (int c = 0; c < C; c++) ((u16 *)shared)[c] = taken ? source[c] : (u16)0;
#endif
}

// Words and scales of 4 columns lie together. Each warp streams the words that its own lanes use through a ring in shared
// memory, in chunks of 32 inputs: many bytes are on their way with few registers, and before the inputs are there. A warp
// takes a tile of 32 / lanes neighbouring blocks at a time. Lanes 30 and 31 have no part, so that a tile may be 20 columns
// wide: 2560 outputs are 128 of them.
template <int bits, int R, int lanes, int C> __device__ __forceinline__ void quantisedStream(const QuantisedRowsParams &p) {
  constexpr int perWord = 32 / bits, blockWords = blockInputs / perWord;
  constexpr int chunkRows = 32 / perWord, chunkInputs = chunkRows * perWord, chunks = blockInputs / chunkInputs;
  constexpr int tileColumns = lanes * C, groups = 32 / lanes;
  constexpr int groupPieces = tileColumns / 4, pieces = groups * groupPieces; // of 16 bytes, of a row of words
  constexpr int copiers = 30, rowsPerCopy = copiers / pieces, copies = chunkRows / rowsPerCopy;
  constexpr int rowBytes = pieces * 16, codeBytes = chunkRows * rowBytes;
  constexpr int chunkBytes = codeBytes + (bits == 4 ? 32 * C * 2 : 0);
  static_assert(groups * lanes == copiers && copiers % pieces == 0 && chunkRows % rowsPerCopy == 0, "lanes copy alike");
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  const QuantisedProduct product = quantisedProductOf(p, blockIdx.y);
  const int rows = (int)p.rows, inputs = (int)p.inputs, depth = (int)p.depth, tiles = (int)p.tiles;
  const int outputs = product.outputs;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks = (inputs + blockInputs - 1) / blockInputs, blocksPerRound = (int)p.blocksPerRound;
  const int columns = tiles * tileColumns, firstColumn = blockIdx.x * columns;
  if (firstColumn >= outputs) { // of a product narrower than the widest
    awaitPredecessor();
    return;
  }
  char *ring = (char *)shared + warp * depth * chunkBytes; // [depth][rows of words, then scales] of this warp
  float *x = shared + warps * depth * (chunkBytes / 4);    // [R][blocksPerRound, padded]
  const int xFloats = blocksPerRound * paddedBlock;
  float *partial = x + R * xFloats;                     // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns; // [R][columns], between rounds

  // Every warp takes equally many turns, of a tile and `groups` blocks; some at the end of a round are empty.
  const int turnsOfTile = (blocksPerRound + groups - 1) / groups;
  const int turnsPerRound = (tiles * turnsOfTile + warps - 1) / warps;
  const int rounds = (blocks + blocksPerRound - 1) / blocksPerRound;
  const int total = rounds * turnsPerRound * chunks;

  const int group = lane / lanes, groupLane = lane % lanes;
  const int copyRow = lane / pieces, copyGroup = lane % pieces / groupPieces, copyColumn = lane % groupPieces * 4;
  const u32 *source = product.codes;
  const u16 *scaleSource = product.scales;
  int rowsLeft = 0, scalesLeft = 0;
  char *target = ring, *const ringEnd = ring + depth * chunkBytes;
  auto issue = [&](int step) {
    if (step % chunks == 0) {
      const int turn = step / chunks, round = turn / turnsPerRound, work = turn % turnsPerRound * warps + warp;
      const int tile = work / turnsOfTile, firstInRound = work % turnsOfTile * groups;
      const int tileColumn = firstColumn + tile * tileColumns;
      auto taken = [&](int inRound, int column) {
        return tile < tiles && inRound < blocksPerRound && column < outputs;
      };
      const int row = (round * blocksPerRound + firstInRound + copyGroup) * blockWords + copyRow;
      source = product.codes + (i64)row * outputs + tileColumn + copyColumn;
      rowsLeft = taken(firstInRound + copyGroup, tileColumn + copyColumn) ? (inputs + perWord - 1) / perWord - row : 0;
      if (bits == 4) {
        const int scaleRow = (round * blocksPerRound + firstInRound + group) * chunks;
        scaleSource = product.scales + (i64)scaleRow * outputs + tileColumn + groupLane * C;
        scalesLeft = group < groups && taken(firstInRound + group, tileColumn + groupLane * C)
                         ? (inputs + chunkInputs - 1) / chunkInputs - scaleRow
                         : 0;
      }
    }
    if (lane < copiers) {
#pragma unroll
      for (int k = 0; k < copies; k++) {
        const bool there = k * rowsPerCopy < rowsLeft;
        copyAside(target + (k * copiers + lane) * 16, there ? source + (i64)(k * rowsPerCopy) * outputs : product.codes,
                  there ? 16 : 0);
      }
    }
    if (bits == 4)
      copyScalesAside<C>(target + codeBytes + lane * (C * 2), scalesLeft > 0 ? scaleSource : product.scales, scalesLeft > 0);
    source += (i64)chunkRows * outputs;
    scaleSource += outputs;
    rowsLeft -= chunkRows;
    scalesLeft--;
    target += chunkBytes;
    if (target == ringEnd) target = ring;
  };
  // Of a turn, where a column has one scale.
  auto scalesOf = [&](int turn) {
    const int tile = (turn % turnsPerRound * warps + warp) / turnsOfTile;
    const int column = firstColumn + tile * tileColumns + groupLane * C;
    return *reinterpret_cast<const Scales<C> *>(product.scales + (tile < tiles && column < outputs ? column : 0));
  };
#pragma unroll 1
  for (int step = 0; step < depth - 1; step++) {
    if (step < total) issue(step);
    endCopyGroup();
  }
  Scales<C> scales = scalesOf(0);
  awaitPredecessor();

  // 1.0f, in a way that keeps it in a register: as a constant it makes every selector of bytes a move of its own.
  const u32 oneBits = 0x3f800000u + ((u32)(p.tiles >> 32) & lane);
  const char *stage = ring, *const stageEnd = ring + depth * chunkBytes;
  int step = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const int begin = round * blocksPerRound, count = min(blocksPerRound, blocks - begin);
    loadPaddedRows(x, xFloats, R, p.x + begin * blockInputs, inputs, rows,
                   min(inputs - begin * blockInputs, count * blockInputs));
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < turnsPerRound; turn++) {
      const int work = turn * warps + warp;
      const int tile = work / turnsOfTile, inRound = work % turnsOfTile * groups + group;
      const bool taken = group < groups && tile < tiles && inRound < count;
      const float *own = x + (taken ? inRound : 0) * paddedBlock;
      Decoder<bits> decoders[C];
      auto setDecoders = [&]() {
#pragma unroll
        for (int c = 0; c < C; c++)
          decoders[c].set(__uint_as_float(c % 2 == 0 ? scales.pair(c) << 16 : scales.pair(c) & 0xffff0000u));
      };
      if (bits == 8) {
        setDecoders();
        scales = scalesOf(turn + 1);
      }
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
        if (bits == 4) {
          scales = *reinterpret_cast<const Scales<C> *>(stage + codeBytes + lane * (C * 2));
          setDecoders();
        }
#pragma unroll
        for (int i = 0; i < chunkRows; i++) {
          // Lanes without a part read what others do: their bytes may lie behind the ring.
          const Words<C> w = *reinterpret_cast<const Words<C> *>(stage + i * rowBytes + min(lane, copiers - 1) * (C * 4));
#pragma unroll
          for (int k = 0; k < perWord; k += 4) {
            float4 four[R];
#pragma unroll
            for (int r = 0; r < R; r++)
              four[r] = *reinterpret_cast<const float4 *>(own + r * xFloats + chunk * chunkInputs + i * perWord + k);
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
              for (int c = 0; c < C; c++) {
                const float weight = decoders[c].weight(w.at(c), k + j, oneBits);
#pragma unroll
                for (int r = 0; r < R; r++) {
                  const float value = j == 0 ? four[r].x : j == 1 ? four[r].y : j == 2 ? four[r].z : four[r].w;
                  acc[r][c] = acc[r][c] + value * weight;
                }
              }
          }
        }
        step++;
        stage += chunkBytes;
        if (stage == stageEnd) stage = ring;
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
    addQuantisedSums<R>(p, product, partial, sums, firstColumn, columns, count, round == 0, round + 1 == rounds);
    if (round + 1 < rounds) __syncthreads();
  }
}

// Any number of columns, one a lane.
template <int bits, int R> __device__ __forceinline__ void quantisedAny(const QuantisedRowsParams &p) {
  constexpr int columns = 32, perWord = 32 / bits;
  extern __shared__ __align__(16) float shared[];
  enterKernel();
  const QuantisedProduct product = quantisedProductOf(p, blockIdx.y);
  const int rows = (int)p.rows, inputs = (int)p.inputs, outputs = product.outputs;
  const int firstColumn = blockIdx.x * columns;
  if (firstColumn >= outputs) return;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks = (inputs + blockInputs - 1) / blockInputs, blocksPerRound = (int)p.blocksPerRound;
  float *own = shared + warp * R * blockInputs;         // [R][128] of this warp
  float *partial = shared + warps * R * blockInputs;    // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns; // [R][columns], between rounds
  const int column = firstColumn + lane;
  for (int begin = 0; begin < blocks; begin += blocksPerRound) {
    const int end = min(blocks, begin + blocksPerRound);
    for (int block = begin + warp; block < end; block += warps) {
      const int from = block * blockInputs, count = min(blockInputs, inputs - from);
      __syncwarp();
#pragma unroll
      for (int r = 0; r < R; r++)
        for (int i = lane; i < blockInputs; i += 32)
          own[r * blockInputs + i] = r < rows && i < count ? p.x[(i64)r * inputs + from + i] : 0.0f;
      __syncwarp();
      if (column >= outputs) continue;
      float acc[R];
#pragma unroll
      for (int r = 0; r < R; r++) acc[r] = 0.0f;
#pragma unroll 8
      for (int i = 0; i < count; i++) {
        const u32 word = product.codes[(i64)((from + i) / perWord) * outputs + column];
        const int code = (int)(word << (32 - bits * (1 + i % perWord))) >> (32 - bits);
        const float scale = scaleAt(product.scales[(bits == 4 ? (i64)((from + i) / 32) * outputs : 0) + column]);
        const float weight = (float)code * scale;
#pragma unroll
        for (int r = 0; r < R; r++) acc[r] = acc[r] + own[r * blockInputs + i] * weight;
      }
#pragma unroll
      for (int r = 0; r < R; r++) partial[((block - begin) * R + r) * columns + lane] = acc[r];
    }
    __syncthreads();
    addQuantisedSums<R>(p, product, partial, sums, firstColumn, columns, end - begin, begin == 0, end == blocks);
    if (end < blocks) __syncthreads();
  }
}

template <int bits, int R, int lanes, int C> struct QuantisedRows {
  static __device__ __forceinline__ void run(const QuantisedRowsParams &p) { quantisedStream<bits, R, lanes, C>(p); }
};
template <int bits, int R> struct QuantisedRows<bits, R, 32, 1> {
  static __device__ __forceinline__ void run(const QuantisedRowsParams &p) { quantisedAny<bits, R>(p); }
};

#define QUANTISED_ROWS(bits, R, lanes, C)                                                                              \
  extern "C" __global__ void __launch_bounds__(lanes == 10 ? 448 : 640, 1)                                             \
      quantised_rows_q##bits##_r##R##_##lanes##x##C(const QuantisedRowsParams p) {                                     \
    QuantisedRows<bits, R, lanes, C>::run(p);                                                                          \
  }
#define QUANTISED_ROWS_OF(bits)                                                                                        \
  QUANTISED_ROWS(bits, 1, 10, 2)                                                                                       \
  QUANTISED_ROWS(bits, 1, 30, 2)                                                                                       \
  QUANTISED_ROWS(bits, 1, 10, 4)                                                                                       \
  QUANTISED_ROWS(bits, 1, 32, 1)                                                                                       \
  QUANTISED_ROWS(bits, 2, 10, 2)                                                                                       \
  QUANTISED_ROWS(bits, 2, 30, 2)                                                                                       \
  QUANTISED_ROWS(bits, 2, 10, 4)                                                                                       \
  QUANTISED_ROWS(bits, 2, 32, 1)                                                                                       \
  QUANTISED_ROWS(bits, 4, 10, 2)                                                                                       \
  QUANTISED_ROWS(bits, 4, 30, 2)                                                                                       \
  QUANTISED_ROWS(bits, 4, 10, 4)                                                                                       \
  QUANTISED_ROWS(bits, 4, 32, 1)
QUANTISED_ROWS_OF(8)
QUANTISED_ROWS_OF(4)
