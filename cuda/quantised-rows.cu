// y = W x + b for 1 to 4 rows from quantised weights: a word holds the codes of 4 or 8 consecutive inputs of one output, a
// weight is code * scale, exactly. Words are read once and serve all rows.
#include "memory.cuh"
#include "norms.cuh"
#include "numbers.cuh"

#include "quantised-codes.cuh"

struct QuantisedRowsParams {
  i64 rows;
  const float *x;
  i64 inputs;
  i64 blocksPerRound;
  i64 quads; // of columns, of all products side by side
  i64 depth; // chunks of words of a warp that are on their way or in use: 2, 3 or 4
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 threshold;
  // Up to three products of one x (query, key and value).
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

// Where four columns of one of the products lie.
struct QuantisedColumns {
  const u32 *codes; // of the first of them
  const u16 *scales;
  int outputs;
};

// The columns of `quad`, where the columns of all products lie side by side in quads.
__device__ __forceinline__ int productOfQuad(const QuantisedRowsParams &p, int &quad) {
  const int first = (int)p.outputs0 / 4, second = first + (int)p.outputs1 / 4;
  const int which = quad < first ? 0 : quad < second ? 1 : 2;
  quad -= which == 0 ? 0 : which == 1 ? first : second;
  return which;
}
__device__ __forceinline__ QuantisedColumns quantisedColumns(const QuantisedRowsParams &p, int quad) {
  if (p.outputs1 == 0) return QuantisedColumns{p.codes0 + quad * 4, p.scales0 + quad * 4, (int)p.outputs0};
  const int which = productOfQuad(p, quad);
  const QuantisedProduct product = quantisedProductOf(p, which);
  return QuantisedColumns{product.codes + quad * 4, product.scales + quad * 4, product.outputs};
}

__device__ __forceinline__ void prefetchLine(const float *address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// Adds the sums of `count` blocks, `stride` apart, to what there is of an output, in ascending order, and ends it with the
// last of them.
__device__ __forceinline__ void addQuantisedSums(const QuantisedRowsParams &p, const QuantisedProduct &product, int row, int column,
                                                 const float *partial, int stride, float *sum, int count, bool first, bool last) {
  const i64 at = (i64)row * product.outputs + column;
  // Asked for before the sum, which they wait behind.
  const float bias = last && product.bias ? product.bias[column] : 0.0f;
  const float residual = last && product.residual ? product.residual[at] : 0.0f;
  float y = first ? 0.0f : *sum;
#pragma unroll 20
  for (int block = 0; block < count; block++) y = y + partial[block * stride];
  if (!last) {
    *sum = y;
    return;
  }
  if (product.bias) y = y + bias;
  if (product.residual) y = y + residual;
  if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
  product.out[at] = y;
}

// Waits until at most depth - 1 groups of this thread's copies are under way.
__device__ __forceinline__ void awaitChunk(int depth) {
  if (depth == 2) awaitCopyGroups<1>();
  else if (depth == 3) awaitCopyGroups<2>();
  else awaitCopyGroups<3>();
}

// The columns of all products lie side by side, and every multiprocessor gets an equal part of them: none has more to do,
// and the next launch finds room beside this one for rings that fill before its inputs are there. A task is a quad of
// columns of a block of 128 inputs. A warp takes 8 * C neighbouring tasks at a time, which may be of two blocks; a lane owns C
// adjacent columns of one. Every instruction beside the two of each product counts: what a chunk of words needs besides is
// done once for many of them.
template <int bits, int R, int C> __device__ __forceinline__ void quantisedStream(const QuantisedRowsParams &p) {
  constexpr int perWord = 32 / bits, blockWords = blockInputs / perWord;
  constexpr int chunkRows = 8, chunkInputs = chunkRows * perWord, chunks = blockInputs / chunkInputs;
  constexpr int groupInputs = 32, groups = bits == 4 ? chunkInputs / groupInputs : 1; // of a chunk, with a scale each
  constexpr int quadsOfWarp = 8 * C, rowsPerCopy = 32 / quadsOfWarp, copies = chunkRows / rowsPerCopy;
  constexpr int rowBytes = quadsOfWarp * 16, codeBytes = chunkRows * rowBytes;       // of a warp
  constexpr int chunkBytes = codeBytes + (bits == 4 ? groups * quadsOfWarp * 8 : 0); // words, then scales
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  const int rows = (int)p.rows, inputs = (int)p.inputs, depth = (int)p.depth;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int firstQuad = (int)(p.quads * blockIdx.x / gridDim.x);
  const int quads = (int)(p.quads * (blockIdx.x + 1) / gridDim.x) - firstQuad, columns = quads * 4;
  const int blocks = max(1, (inputs + blockInputs - 1) / blockInputs), blocksPerRound = (int)p.blocksPerRound;
  char *const ring = (char *)shared + warp * depth * chunkBytes; // [depth] chunks of this warp
  float *x = shared + warps * depth * (chunkBytes / 4);          // [R][blocksPerRound, padded]
  const int xFloats = blocksPerRound * paddedBlock;
  float *partial = x + R * xFloats;                     // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns; // [R][columns], between rounds

  // Turns of a warp in a round, as many as its first lane has tasks. Tasks of a turn lie `stepBlocks` blocks and `stepQuads`
  // quads behind those of the one before.
  const int units = (blocksPerRound * quads + quadsOfWarp - 1) / quadsOfWarp;
  const int mine = units > warp ? (units - warp + warps - 1) / warps : 0;
  const int rounds = (blocks + blocksPerRound - 1) / blocksPerRound;
  const int stepBlocks = warps * quadsOfWarp / quads, stepQuads = warps * quadsOfWarp % quads;
  const int copyTask = warp * quadsOfWarp + lane % quadsOfWarp, ownTask = warp * quadsOfWarp + lane * C / 4;

  int left = rounds * mine * chunks; // chunks not asked for yet
  int askedRound = 0, askedTurn = 0, askedChunk = 0, askedBlock = copyTask / quads, askedQuad = copyTask % quads;
  int rowsLeft = 0, groupsLeft = 0, stride = 0;
  const u32 *source = p.codes0;
  const u16 *scaleSource = p.scales0;
  const auto issue = [&](char *target) {
    if (askedChunk == 0) {
      const int block = askedRound * blocksPerRound + askedBlock;
      const bool taken = askedBlock < blocksPerRound && block < blocks;
      const QuantisedColumns from = quantisedColumns(p, firstQuad + askedQuad);
      const int row = block * blockWords + lane / quadsOfWarp;
      stride = from.outputs;
      source = from.codes + (i64)row * stride;
      rowsLeft = taken ? (inputs + perWord - 1) / perWord - row : 0;
      if (bits == 4) {
        const int group = block * (blockInputs / groupInputs) + lane / quadsOfWarp;
        scaleSource = from.scales + (i64)group * stride;
        groupsLeft = taken && lane < groups * quadsOfWarp ? (inputs + groupInputs - 1) / groupInputs - group : 0;
      }
      askedBlock += stepBlocks;
      askedQuad += stepQuads;
      if (askedQuad >= quads) {
        askedQuad -= quads;
        askedBlock++;
      }
    }
    const i64 step = (i64)stride * rowsPerCopy;
    char *const to = target + lane * 16;
    if (rowsLeft > (copies - 1) * rowsPerCopy) {
#pragma unroll
      for (int k = 0; k < copies; k++) {
        copyAside(to + k * 512, source, 16);
        source += step;
      }
    } else {
#pragma unroll
      for (int k = 0; k < copies; k++) {
        const bool there = k * rowsPerCopy < rowsLeft;
        copyAside(to + k * 512, there ? source : p.codes0, there ? 16 : 0);
        source += step;
      }
    }
    rowsLeft -= chunkRows;
    if (bits == 4) {
      if (lane < groups * quadsOfWarp)
        copyScalesAside(target + codeBytes + lane * 8, groupsLeft > 0 ? scaleSource : p.scales0, groupsLeft > 0);
      scaleSource += (i64)stride * groups;
      groupsLeft -= groups;
    }
    if (++askedChunk < chunks) return;
    askedChunk = 0;
    if (++askedTurn < mine) return;
    askedTurn = 0;
    askedRound++;
    askedBlock = copyTask / quads;
    askedQuad = copyTask % quads;
  };
  char *const ringEnd = ring + depth * chunkBytes;
#pragma unroll 1
  for (char *target = ring; target != ringEnd; target += chunkBytes) {
    if (left-- > 0) issue(target);
    endCopyGroup();
  }
  int block = ownTask / quads, quad = ownTask % quads; // of the lane's task
  // Where a column has one scale.
  const auto scalesOf = [&](int of) {
    return *reinterpret_cast<const Scales<C> *>(quantisedColumns(p, firstQuad + of).scales + lane * C % 4);
  };
  Scales<C> scales = {};
  if (bits == 8) scales = scalesOf(quad);
  for (int column = threadIdx.x; column < columns; column += blockDim.x) {
    int of = firstQuad + column / 4;
    const QuantisedProduct product = quantisedProductOf(p, productOfQuad(p, of));
    if (product.bias) prefetchLine(product.bias + of * 4);
  }
  awaitPredecessor();

  // 1.0f, in a way that keeps it in a register: as a constant it makes every selector of bytes a move of its own.
  const u32 oneBits = 0x3f800000u + ((u32)(p.quads >> 32) & lane);
  char *stage = ring;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const int begin = round * blocksPerRound, count = min(blocksPerRound, blocks - begin);
    loadPaddedRows(x, xFloats, R, p.x + begin * blockInputs, inputs, rows,
                   min(inputs - begin * blockInputs, count * blockInputs));
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < mine; turn++) {
      const bool taken = block < count;
      const float *own = x + (taken ? block : 0) * paddedBlock;
      float *to = partial + block * (R * columns) + quad * 4 + lane * C % 4;
      block += stepBlocks;
      quad += stepQuads;
      if (quad >= quads) {
        quad -= quads;
        block++;
      }
      if (turn + 1 == mine) {
        block = ownTask / quads;
        quad = ownTask % quads;
      }
      Decoder<bits> decoders[C];
      if (bits == 8) {
#pragma unroll
        for (int c = 0; c < C; c++) decoders[c].set(scales.at(c));
        scales = scalesOf(quad);
      }
      float acc[R][C];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk++) {
        awaitChunk(depth);
        __syncwarp(); // other lanes' copies have landed
        const char *from = stage + lane * (C * 4), *fromScales = stage + codeBytes + lane * (C * 2);
#pragma unroll 1
        for (int group = 0; group < groups; group++) {
          if (bits == 4) {
            scales = *reinterpret_cast<const Scales<C> *>(fromScales);
#pragma unroll
            for (int c = 0; c < C; c++) decoders[c].set(scales.at(c));
            fromScales += quadsOfWarp * 8;
          }
#pragma unroll
          for (int i = 0; i < chunkRows / groups; i++) {
            const Words<C> words = *reinterpret_cast<const Words<C> *>(from + i * rowBytes);
            float w[C][perWord];
#pragma unroll
            for (int c = 0; c < C; c++) decoders[c].weights(words.at(c), oneBits, w[c]);
#pragma unroll
            for (int k = 0; k < perWord; k += 4) {
              float4 four[R];
#pragma unroll
              for (int r = 0; r < R; r++)
                four[r] = *reinterpret_cast<const float4 *>(own + r * xFloats + i * perWord + k);
#pragma unroll
              for (int j = 0; j < 4; j++)
#pragma unroll
                for (int c = 0; c < C; c++)
#pragma unroll
                  for (int r = 0; r < R; r++) {
                    const float value = j == 0 ? four[r].x : j == 1 ? four[r].y : j == 2 ? four[r].z : four[r].w;
                    acc[r][c] = acc[r][c] + value * w[c][k + j];
                  }
            }
          }
          from += chunkRows / groups * rowBytes;
          own += chunkInputs / groups;
        }
        __syncwarp(); // all lanes have read the chunk
        if (left-- > 0) issue(stage);
        endCopyGroup();
        stage += chunkBytes;
        if (stage == ringEnd) stage = ring;
      }
      if (!taken) continue;
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) to[r * columns + c] = acc[r][c];
    }
    __syncthreads();
    for (int o = threadIdx.x; o < R * columns; o += blockDim.x) {
      const int r = o / columns;
      if (r >= rows) continue;
      int of = firstQuad + o % columns / 4;
      const QuantisedProduct product = quantisedProductOf(p, productOfQuad(p, of));
      addQuantisedSums(p, product, r, of * 4 + o % 4, partial + o, R * columns, sums + o, count, round == 0,
                       round + 1 == rounds);
    }
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
    for (int o = threadIdx.x; o < R * columns; o += blockDim.x)
      if (o / columns < rows && firstColumn + o % columns < outputs)
        addQuantisedSums(p, product, o / columns, firstColumn + o % columns, partial + o, R * columns, sums + o, end - begin,
                         begin == 0, end == blocks);
    if (end < blocks) __syncthreads();
  }
}

// Two blocks of threads of different launches share a multiprocessor.
#define QUANTISED_ROWS(bits, R, threads)                                                                               \
  extern "C" __global__ void __launch_bounds__(threads, 2) quantised_rows_q##bits##_r##R##_c1(const QuantisedRowsParams p) { \
    quantisedStream<bits, R, 1>(p);                                                                                    \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(threads, 2) quantised_rows_q##bits##_r##R##_c2(const QuantisedRowsParams p) { \
    quantisedStream<bits, R, 2>(p);                                                                                    \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(640, 1) quantised_rows_q##bits##_r##R##_any(const QuantisedRowsParams p) { \
    quantisedAny<bits, R>(p);                                                                                          \
  }
QUANTISED_ROWS(8, 1, 512)
QUANTISED_ROWS(8, 2, 512)
QUANTISED_ROWS(8, 4, 384)
QUANTISED_ROWS(4, 1, 512)
QUANTISED_ROWS(4, 2, 512)
QUANTISED_ROWS(4, 4, 384)
