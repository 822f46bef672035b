// y = W x + b for 1 to 4 rows from quantised weights: a word holds the codes of 4 or 8 consecutive inputs of one output, a
// weight is code * scale, exactly. Words are read once, 16 bytes a load, and serve all rows. A group of `lanes` lanes owns
// lanes * C columns of one block of 128 inputs; block sums meet in shared memory and are added there in ascending order.
#include "numbers.cuh"

struct QuantisedRowsParams {
  i64 rows;
  const float *x;
  i64 inputs;
  i64 blocksPerRound;
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

template <int C> struct Words;
template <> struct Words<1> {
  u32 a;
  __device__ __forceinline__ u32 at(int) const { return a; }
};
template <> struct Words<4> {
  uint4 a;
  __device__ __forceinline__ u32 at(int c) const { return c == 0 ? a.x : c == 1 ? a.y : c == 2 ? a.z : a.w; }
};

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
  __device__ __forceinline__ float weight(u32 word, int k) const {
    const float one = __uint_as_float(__byte_perm(word ^ 0x80808080u, 0x3f800000u, 0x7604 | k << 4));
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
  __device__ __forceinline__ float weight(u32 word, int k) const {
    const u32 shifted = k < 2 ? word << 8 : word >> (k / 2 * 8 - 8);
    const bool odd = k % 2 == 1;
    const u32 mask = odd ? 0x0000f000u : 0x00000f00u, flip = odd ? 0x3f808000u : 0x3f800800u;
    const float one = __uint_as_float((shifted & mask) ^ flip);
    return odd ? __fmaf_rn(one, oddFactor, oddAddend) : __fmaf_rn(one, evenFactor, evenAddend);
  }
};

template <int bits, int R, int lanes, int C>
__device__ __forceinline__ void quantisedRows(const QuantisedRowsParams &p) {
  constexpr int columns = lanes * C;
  constexpr int perWord = 32 / bits;
  constexpr int wordRows = blockInputs / perWord;
  constexpr int groupWords = bits == 4 ? 32 / perWord : wordRows; // word rows that share a scale
  constexpr int batch = R == 1 ? 8 : 4;                           // loads in flight, twice
  constexpr int batches = wordRows / batch;
  extern __shared__ float shared[];
  releaseSuccessor();
  const int which = blockIdx.y;
  const u32 *codes = which == 0 ? p.codes0 : which == 1 ? p.codes1 : p.codes2;
  const u16 *scales = which == 0 ? p.scales0 : which == 1 ? p.scales1 : p.scales2;
  float *out = which == 0 ? p.out0 : which == 1 ? p.out1 : p.out2;
  const float *bias = which == 0 ? p.bias0 : which == 1 ? p.bias1 : p.bias2;
  const float *residual = which == 0 ? p.residual0 : nullptr;
  const int outputs = (int)(which == 0 ? p.outputs0 : which == 1 ? p.outputs1 : p.outputs2);
  const int rows = (int)p.rows, inputs = (int)p.inputs;
  const int firstColumn = blockIdx.x * columns;
  const int groups = blockDim.x / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  const int blocks = (inputs + blockInputs - 1) / blockInputs;
  const int blocksPerRound = (int)p.blocksPerRound;
  float *own = shared + group * R * blockInputs;        // [R][128] of this group
  float *partial = shared + groups * R * blockInputs;   // [blocksPerRound][R][columns]
  float *sums = partial + blocksPerRound * R * columns; // [R][columns], between rounds
  const int column = firstColumn + lane * C;
  const bool inside = column + C <= outputs;
  Words<C> w[2][batch];

  auto load = [&](Words<C> (&to)[batch], const u32 *from) {
#pragma unroll
    for (int i = 0; i < batch; i++) to[i] = *reinterpret_cast<const Words<C> *>(from + (i64)i * outputs);
  };
  auto wholeAt = [&](int block) { return inside && (block + 1) * blockInputs <= inputs; };
  auto codesAt = [&](int block) { return codes + (i64)block * wordRows * outputs + column; };

  // No kernel writes weights: the first of them may be on their way before the inputs are there.
  if (wholeAt(group)) load(w[0], codesAt(group));
  awaitPredecessor();
  if (firstColumn >= outputs) return;

  for (int begin = 0; begin < blocks; begin += blocksPerRound) {
    const int end = min(blocks, begin + blocksPerRound);
    // All groups of a warp take the same number of turns.
    for (int base = begin; base < end; base += groups) {
      const int block = base + group;
      const bool taken = block < end;
      const int from = block * blockInputs;
      const int count = taken ? min(blockInputs, inputs - from) : 0;
      const u32 *words = codesAt(block);
      const bool whole = taken && wholeAt(block);
      if (whole && base > 0) load(w[0], words);
      __syncwarp();
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int k = 0; k < blockInputs / lanes; k++) {
          const int i = k * lanes + lane;
          own[r * blockInputs + i] = r < rows && i < count ? p.x[(i64)r * inputs + from + i] : 0.0f;
        }
      __syncwarp();
      float acc[R][C];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) acc[r][c] = 0.0f;
      Decoder<bits> decoders[C];
      auto setScales = [&](int word) {
        const u16 *at = scales + (bits == 4 ? (i64)(from / 32 + word / groupWords) * outputs : 0) + column;
        if (C == 4) {
          const uint2 four = *reinterpret_cast<const uint2 *>(at);
          decoders[0].set(__uint_as_float(four.x << 16));
          decoders[1 % C].set(__uint_as_float(four.x & 0xffff0000u));
          decoders[2 % C].set(__uint_as_float(four.y << 16));
          decoders[3 % C].set(__uint_as_float(four.y & 0xffff0000u));
        } else {
          decoders[0].set(scaleAt(*at));
        }
      };
      auto addBatch = [&](const Words<C> (&now)[batch], int step) {
#pragma unroll
        for (int i = 0; i < batch; i++) {
          if (bits == 4 && i % groupWords == 0) setScales(step * batch + i);
#pragma unroll
          for (int four = 0; four < perWord; four += 4) {
            float4 x[R];
#pragma unroll
            for (int r = 0; r < R; r++)
              x[r] = *reinterpret_cast<const float4 *>(own + r * blockInputs + (step * batch + i) * perWord + four);
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
              for (int c = 0; c < C; c++) {
                const float weight = decoders[c].weight(now[i].at(c), four + j);
#pragma unroll
                for (int r = 0; r < R; r++) {
                  const float value = j == 0 ? x[r].x : j == 1 ? x[r].y : j == 2 ? x[r].z : x[r].w;
                  acc[r][c] = acc[r][c] + value * weight;
                }
              }
          }
        }
      };
      if (whole) {
        if (bits == 8) setScales(0);
#pragma unroll 1
        for (int step = 0; step < batches; step += 2) {
          load(w[1], words + (i64)(step + 1) * batch * outputs);
          addBatch(w[0], step);
          if (step + 2 < batches) load(w[0], words + (i64)(step + 2) * batch * outputs);
          addBatch(w[1], step + 1);
        }
      } else {
        for (int i = 0; i < count; i++) {
#pragma unroll
          for (int c = 0; c < C; c++) {
            if (column + c >= outputs) continue;
            const u32 word = codes[(i64)((from + i) / perWord) * outputs + column + c];
            const int code = (int)(word << (32 - bits * (1 + i % perWord))) >> (32 - bits);
            const float scale = scaleAt(scales[(bits == 4 ? (i64)((from + i) / 32) * outputs : 0) + column + c]);
            const float weight = (float)code * scale;
#pragma unroll
            for (int r = 0; r < R; r++) acc[r][c] = acc[r][c] + own[r * blockInputs + i] * weight;
          }
        }
      }
      if (taken) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int c = 0; c < C; c++) partial[((block - begin) * R + r) * columns + lane * C + c] = acc[r][c];
      }
    }
    __syncthreads();
    for (int o = threadIdx.x; o < R * columns; o += blockDim.x) {
      const int r = o / columns, target = firstColumn + o % columns;
      if (r >= rows || target >= outputs) continue;
      const i64 at = (i64)r * outputs + target;
      float y = begin > 0 ? sums[o] : 0.0f;
#pragma unroll 16
      for (int block = 0; block < end - begin; block++) y = y + partial[block * R * columns + o];
      if (end < blocks) {
        sums[o] = y;
        continue;
      }
      if (bias) y = y + bias[target];
      if (residual) y = y + residual[at];
      if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.threshold);
      out[at] = y;
    }
    if (end < blocks) __syncthreads();
  }
}

#define QUANTISED_ROWS(bits, R, lanes, C)                                                                              \
  extern "C" __global__ void __launch_bounds__(640)                                                                    \
      quantised_rows_q##bits##_r##R##_##lanes##x##C(const QuantisedRowsParams p) {                                     \
    quantisedRows<bits, R, lanes, C>(p);                                                                               \
  }
#define QUANTISED_ROWS_OF(bits)                                                                                        \
  QUANTISED_ROWS(bits, 1, 4, 4)                                                                                        \
  QUANTISED_ROWS(bits, 1, 8, 4)                                                                                        \
  QUANTISED_ROWS(bits, 1, 32, 1)                                                                                       \
  QUANTISED_ROWS(bits, 2, 8, 4)                                                                                        \
  QUANTISED_ROWS(bits, 2, 32, 1)                                                                                       \
  QUANTISED_ROWS(bits, 4, 8, 4)                                                                                        \
  QUANTISED_ROWS(bits, 4, 32, 1)
QUANTISED_ROWS_OF(8)
QUANTISED_ROWS_OF(4)
