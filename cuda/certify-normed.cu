// One row's certificates in one launch: the norm, the rounded input, what a low-bit copy leaves uncertain, and the rows of
// those neurons. Every block of threads makes the rounded input for itself while its part of the copy is on its way, which
// is cheaper than waiting for another kernel. The norms that a certificate needs are long chains of additions: a warp of its
// own adds them beside the whole-number products, which need none of them. Only without directions and for inputs in
// multiples of 512, where every part of a neuron's codes is a multiple of 16 bytes.
#include "memory.cuh"
#include "norms.cuh"

#include "round-input.cuh"
#include "uncertain-rows.cuh"

struct CertifyNormedParams {
  i64 rows; // 1
  i64 inputs;
  i64 outputs;
  f64 threshold;
  // A norm whose result is x: -1 for none, 0 layer, 1 RMS.
  i64 norm;
  f64 epsilon;
  const float *from;
  const float *scale;
  const float *shift;
  float *x;
  f64 inflation; // as of RoundInputParams, as the next four
  f64 gamma;
  f64 constant;
  f64 *scalars;
  short *rounded;
  const float *records; // of the copy, as the next three
  const void *codes;
  const void *high;
  const void *groupScales;
  const float *bias;
  float *out;
  i64 slots; // neurons of a warp whose codes are on their way: 1 to 8
  i64 early; // of them, asked for before the inputs
  i64 most;  // neurons of a block of threads
  // The product with the rows of uncertain neurons: -1 for none, 0 F32, 1 F16, 2 BF16.
  i64 weights;
  const void *matrix; // output-major
  i64 rowStride;
  float *flags; // [outputs]: 1 where a neuron is uncertain
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 activationThreshold;
  i64 rowBlocks; // of 128 inputs that a warp's room holds at once
};

constexpr int productWarps = 16, productThreads = 32 * productWarps;
constexpr int normedThreads = productThreads + 32; // the last warp adds norms
constexpr int roundedBlock = blockInputs + 8;      // shorts from one block of inputs to the next

// Waits until at most `newest` groups of this thread are under way.
__device__ __forceinline__ void awaitNewest(int newest) {
  switch (newest) {
  case 0: return awaitCopyGroups<0>();
  case 1: return awaitCopyGroups<1>();
  case 2: return awaitCopyGroups<2>();
  case 3: return awaitCopyGroups<3>();
  case 4: return awaitCopyGroups<4>();
  case 5: return awaitCopyGroups<5>();
  case 6: return awaitCopyGroups<6>();
  default: return awaitCopyGroups<7>();
  }
}

// What a block of threads shares behind its rings.
struct NormedRoom {
  float *x;         // [blocks of 128, padded]
  f64 *squares;     // [blocks][wideBlock]
  f64 *missed;      // likewise
  f64 *sums;        // [2][blocks]
  f64 *scalars;     // [8]
  i64 *joined;      // [32]
  i64 *products;    // [most], most rounded up to even numbers
  float *records;   // [most][4]
  short *rounded;   // [blocks][roundedBlock]
  float *partial;   // [warps][32]
  float *biases;    // [most]
  int *found;       // a count, then the uncertain neurons
};

__device__ __forceinline__ NormedRoom normedRoom(char *at, int blocks, int most) {
  const int even = (most + 1) / 2 * 2;
  NormedRoom room;
  room.x = (float *)at;
  room.squares = (f64 *)(room.x + blocks * paddedBlock);
  room.missed = room.squares + blocks * wideBlock;
  room.sums = room.missed + blocks * wideBlock;
  room.scalars = room.sums + 2 * blocks;
  room.joined = (i64 *)(room.scalars + scalarsOfRow);
  room.products = room.joined + 32;
  room.records = (float *)(room.products + even);
  room.rounded = (short *)(room.records + 4 * even);
  room.partial = (float *)(room.rounded + blocks * roundedBlock);
  room.biases = room.partial + productThreads;
  room.found = (int *)(room.biases + even);
  return room;
}

// What rounding leaves for the scalars.
struct RoundedUnit {
  f64 unit;
  bool finite;
};

// The rounded input, squares of x and of what rounding misses, and sums of squares of whole numbers by warp. `own`: elements
// of a thread at most. All threads of the block call it, with the input in shared memory and a barrier behind it.
template <int own>
__device__ __forceinline__ RoundedUnit roundNormed(const CertifyNormedParams &p, const NormedRoom &room, const float (&scales)[own],
                                                   const float (&shifts)[own], bool first) {
  const int inputs = (int)p.inputs, tid = threadIdx.x;
  const bool rms = p.norm == 1;
  float *row = room.x;
  float values[own];
  float largest = 0.0f;
  NormScale scale = {0.0f, 0.0f};
  if (p.norm >= 0) scale = normScale(row, (float *)room.sums, inputs, rms, (float)p.epsilon);
#pragma unroll
  for (int k = 0; k < own; k++) {
    const int i = tid + k * productThreads;
    values[k] = 0.0f;
    if (tid >= productThreads || i >= inputs) continue;
    float y = row[paddedIndex(i)];
    if (p.norm >= 0) { // as `normed`
      y = (rms ? y : y - scale.mean) * scale.r;
      if (p.scale) y = y * scales[k];
      if (p.shift) y = y + shifts[k];
      row[paddedIndex(i)] = y;
      if (first) p.x[i] = y;
    }
    values[k] = y;
    const float size = magnitudeOf(y);
    if (!(size <= largest)) largest = size == size ? size : __uint_as_float(0x7f800000u);
    room.squares[i / blockInputs * wideBlock + i % blockInputs] = (f64)y * (f64)y;
  }
  // Magnitudes are ordered as their bits are.
  const u32 highest = warpMaximum(__float_as_uint(largest));
  u32 *maxima = (u32 *)room.joined;
  if (tid % 32 == 0) maxima[tid / 32] = highest;
  __syncthreads();
  const int lane = tid % 32;
  largest = __uint_as_float(warpMaximum(lane < productWarps ? maxima[lane] : 0u));
  __syncthreads(); // before the place of the maxima is written again
  RoundedUnit result;
  result.finite = largest != __uint_as_float(0x7f800000u);
  const int exponent = result.finite ? exponentOf((f64)largest) - 14 : 0;
  result.unit = powerOfTwo(exponent);
  const f64 inverse = powerOfTwo(-exponent);
  if (tid >= productThreads) return result;
  i64 squares = 0;
#pragma unroll
  for (int k = 0; k < own; k++) {
    const int i = tid + k * productThreads;
    if (i >= inputs) break;
    const f64 value = (f64)values[k];
    const int near = result.finite ? roundedWhole(value * inverse) : 0;
    const f64 missed = value - (f64)near * result.unit;
    squares += (i64)near * near;
    const int block = i / blockInputs, at = i % blockInputs;
    room.rounded[block * roundedBlock + at] = (short)near;
    if (first) p.rounded[i] = (short)near;
    room.missed[block * wideBlock + at] = missed * missed;
  }
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  if (lane == 0) room.joined[tid / 32] = squares;
  return result;
}

// The scalars of docs/certificates.md, by the last warp: a lane adds a block of both sums, so that one addition waits while
// the other is made.
__device__ __forceinline__ void addNorms(const CertifyNormedParams &p, const NormedRoom &room, RoundedUnit rounded, bool first) {
  const int blocks = (int)p.inputs / blockInputs, lane = threadIdx.x % 32;
  for (int block = lane; block < blocks; block += 32) {
    const f64 *squares = room.squares + block * wideBlock, *missed = room.missed + block * wideBlock;
    f64 x = 0.0, rest = 0.0;
#pragma unroll 16
    for (int i = 0; i < blockInputs; i++) {
      x = x + squares[i];
      rest = rest + missed[i];
    }
    room.sums[block] = x;
    room.sums[blocks + block] = rest;
  }
  __syncwarp();
  f64 xSquares = 0.0, missedSquares = 0.0;
  i64 all = 0;
#pragma unroll 4
  for (int block = 0; block < blocks; block++) {
    xSquares = xSquares + room.sums[block];
    missedSquares = missedSquares + room.sums[blocks + block];
  }
#pragma unroll
  for (int w = 0; w < productWarps; w++) all += room.joined[w];
  // The three roots side by side.
  const f64 root = sqrt(lane == 0 ? xSquares : lane == 1 ? missedSquares : (f64)all);
  const f64 xNorm = __shfl_sync(0xffffffffu, root, 0) * p.inflation;
  const f64 ofWeights = p.gamma * xNorm + __shfl_sync(0xffffffffu, root, 1) * p.inflation;
  const f64 ofResiduals = __shfl_sync(0xffffffffu, root, 2) * rounded.unit * p.inflation;
  if (lane >= scalarsOfRow) return;
  f64 value = lane == 0 ? rounded.unit : lane == 2 ? ofWeights : lane == 3 ? ofResiduals : lane == 6 ? p.constant : lane == 7 ? xNorm : 0.0;
  if (!rounded.finite) value = lane == 7 ? (f64)__uint_as_float(0x7f800000u) : 0.0;
  room.scalars[lane] = value;
  if (first) p.scalars[lane] = value;
}

// A warp takes a neuron at a time; a lane meets the same inputs in each of them, and keeps these in registers: U units of
// 16 bytes of codes. Part `part` of `parts` of the neurons, by all threads of a block.
template <int bits, bool groups, int U>
__device__ __forceinline__ void certifyNormed(const CertifyNormedParams &p, int part, int parts, char *shared) {
  constexpr int pieces = bits == 8 ? 1 : 2, codesOfUnit = 16 * pieces, warps = productWarps;
  constexpr int highOfUnit = bits == 8 ? 0 : (bits - 4) * 4;
  constexpr int own = (U * codesOfUnit * 32 + productThreads - 1) / productThreads;
  const int inputs = (int)p.inputs, outputs = (int)p.outputs, blocks = inputs / blockInputs;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slots = (int)p.slots;
  const int units = inputs / codesOfUnit, codeBytes = units * 16, highBytes = units * highOfUnit;
  const int scaleBytes = groups ? inputs / lowBitGroup : 0, slotBytes = codeBytes + highBytes + scaleBytes;
  const int firstNeuron = (int)((i64)outputs * part / parts);
  const int neurons = (int)((i64)outputs * (part + 1) / parts) - firstNeuron;
  const int mine = warp < warps && neurons > warp ? (neurons - warp + warps - 1) / warps : 0;
  char *const ring = shared + warp * slots * slotBytes;
  const NormedRoom room = normedRoom(shared + warps * slots * slotBytes, blocks, (int)p.most);

  const auto issue = [&](int turn, char *slot) {
    const i64 neuron = firstNeuron + warp + turn * warps;
    const char *codes = (const char *)p.codes + neuron * codeBytes;
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int at = (lane + 32 * u) * 16;
      if (at < codeBytes) copyAside(slot + at, codes + at, 16);
    }
    if constexpr (highOfUnit > 0)
      for (int at = lane * 16; at < highBytes; at += 512)
        copyAside(slot + codeBytes + at, (const char *)p.high + neuron * highBytes + at, 16);
    if constexpr (groups)
      for (int at = lane * 16; at < scaleBytes; at += 512)
        copyAside(slot + codeBytes + highBytes + at, (const char *)p.groupScales + neuron * scaleBytes + at, 16);
  };
  // All that no kernel writes comes before the wait for the one in front.
  float scales[own], shifts[own];
#pragma unroll
  for (int k = 0; k < own; k++) {
    const int i = threadIdx.x + k * productThreads;
    const bool there = p.norm >= 0 && threadIdx.x < productThreads && i < inputs;
    scales[k] = there && p.scale ? p.scale[i] : 0.0f;
    shifts[k] = there && p.shift ? p.shift[i] : 0.0f;
  }
  for (int i = threadIdx.x; i < neurons * 4; i += normedThreads) room.records[i] = p.records[(i64)firstNeuron * 4 + i];
  for (int i = threadIdx.x; i < neurons; i += normedThreads) room.biases[i] = p.bias ? p.bias[firstNeuron + i] : 0.0f;
  if (threadIdx.x == 0) room.found[0] = 0;
  // Inputs would wait behind all copies that are asked for before them, so most of these come behind them.
  const auto issueSlots = [&](int from, int to) {
#pragma unroll 1
    for (int turn = from; turn < to; turn++) {
      if (turn < mine) issue(turn, ring + turn * slotBytes);
      endCopyGroup();
    }
  };
  const int early = min((int)p.early, slots);
  issueSlots(0, early);
  awaitPredecessor();
  loadPaddedRows(room.x, 0, 1, p.norm < 0 ? p.x : p.from, 0, 1, inputs);
  issueSlots(early, slots);
  __syncthreads();
  const RoundedUnit rounded = roundNormed<own>(p, room, scales, shifts, part == 0);
  __syncthreads();

  if (warp >= warps) {
    addNorms(p, room, rounded, part == 0);
  } else {
    u32 high[U][pieces][4], low[U][pieces][4];
    int groupSums[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int unit = lane + 32 * u;
      const bool there = unit < units;
      const int begin = (there ? unit : 0) * codesOfUnit;
      const uint4 *from = (const uint4 *)(room.rounded + begin / blockInputs * roundedBlock + begin % blockInputs);
      int total = 0;
#pragma unroll
      for (int piece = 0; piece < pieces; piece++) {
        const uint4 a = from[2 * piece], b = from[2 * piece + 1];
#pragma unroll
        for (int i = 0; i < 4; i++) { // of each input the upper byte, and the lower one
          const u32 left = wordOf(i < 2 ? a : b, i % 2 * 2), right = wordOf(i < 2 ? a : b, i % 2 * 2 + 1);
          low[u][piece][i] = there ? __byte_perm(left, right, 0x6420) : 0u;
          high[u][piece][i] = there ? __byte_perm(left, right, 0x7531) : 0u;
          if constexpr (bits < 8)
            total = total + 256 * dotSigned(0x01010101u, high[u][piece][i], 0) + dotUnsigned(0x01010101u, low[u][piece][i], 0);
        }
      }
      groupSums[u] = total;
    }
    char *slot = ring;
#pragma unroll 1
    for (int turn = 0; turn < mine; turn++) {
      awaitNewest(slots - 1);
      __syncwarp(); // other lanes' copies have landed
      int a = 0, b = 0;
      i64 sum = 0;
#pragma unroll
      for (int u = 0; u < U; u++) {
        const int unit = lane + 32 * u;
        const bool there = unit < units;
        const uint4 code = there ? *(const uint4 *)(slot + unit * 16) : make_uint4(0u, 0u, 0u, 0u);
        int factor = 0;
        if constexpr (groups) factor = there ? ((const unsigned char *)slot)[codeBytes + highBytes + unit / (bits == 8 ? 2 : 1)] : 0;
        if constexpr (bits == 8) {
          if constexpr (groups) a = b = 0;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            a = dotSigned(wordOf(code, i), high[u][0][i], a);
            b = dotUnsigned(wordOf(code, i), low[u][0][i], b);
          }
          if constexpr (groups) sum += (i64)factor * (256 * a + b);
        } else {
          u32 first[4], second[4], over[2] = {0, 0};
          if constexpr (bits == 5) over[0] = there ? *(const u32 *)(slot + codeBytes + unit * 4) : 0u;
          if constexpr (bits == 6) {
            const uint2 two = there ? *(const uint2 *)(slot + codeBytes + unit * 8) : make_uint2(0u, 0u);
            over[0] = two.x;
            over[1] = two.y;
          }
          unpackCodes<bits>(code, over, first, second);
          a = b = 0;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            a = dotSigned(first[i], high[u][0][i], a);
            a = dotSigned(second[i], high[u][pieces - 1][i], a);
            b = dotUnsigned(first[i], low[u][0][i], b);
            b = dotUnsigned(second[i], low[u][pieces - 1][i], b);
          }
          sum += (i64)factor * (256 * a + b - (1 << (bits - 1)) * groupSums[u]);
        }
      }
      __syncwarp(); // all lanes have read the slot
      if (turn + slots < mine) issue(turn + slots, slot);
      endCopyGroup();
      slot = slot == ring + (slots - 1) * slotBytes ? ring : slot + slotBytes;
      if constexpr (groups) sum = warpSum(sum);
      else sum = (i64)warpSum(a) * 256 + warpSum(b);
      if (lane == 0) room.products[warp + turn * warps] = sum;
    }
    awaitCopyGroups<0>();
  }
  __syncthreads();

  for (int local = threadIdx.x; local < neurons; local += normedThreads) {
    const int neuron = firstNeuron + local;
    const bool mark = !isInactive(room.scalars, room.records + local * 4, false, (f64)room.products[local], 0.0,
                                  (f64)room.biases[local], p.threshold);
    if (p.weights < 0) {
      p.out[neuron] = mark ? 1.0f : 0.0f;
      continue;
    }
    p.flags[neuron] = mark ? 1.0f : 0.0f;
    if (mark) room.found[1 + atomicAdd(room.found, 1)] = neuron;
    else p.out[neuron] = 0.0f;
  }
  if (p.weights < 0) return;
  __syncthreads();
  if (warp >= warps) return;
  const int count = room.found[0];
  float *partial = room.partial + warp * 32;
  for (int i = warp; i < count; i += warps) {
    const int neuron = room.found[1 + i];
    if (p.weights == 0) uncertainRow<F32, 1>(p, neuron, room.x, 0, ring, partial);
    else if (p.weights == 1) uncertainRow<F16, 1>(p, neuron, room.x, 0, ring, partial);
    else uncertainRow<Bf16, 1>(p, neuron, room.x, 0, ring, partial);
  }
}

template <int bits, bool groups, int U> __device__ __forceinline__ void certifyNormedAlone(const CertifyNormedParams &p) {
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  certifyNormed<bits, groups, U>(p, blockIdx.x, gridDim.x, (char *)shared);
}

// U: units of 16 bytes of codes of a lane; src/backend/cuda/plan-certify-normed.ts chooses the least that holds the inputs.
#define CERTIFY_NORMED(name, bits, groups, U)                                                                          \
  extern "C" __global__ void __launch_bounds__(normedThreads, 1)                                                       \
      certify_normed_##name##_u##U(const CertifyNormedParams p) {                                                      \
    certifyNormedAlone<bits, groups, U>(p);                                                                            \
  }
CERTIFY_NORMED(int8, 8, false, 5)
CERTIFY_NORMED(int8, 8, false, 10)
CERTIFY_NORMED(int8g32, 8, true, 5)
CERTIFY_NORMED(int6g32, 6, true, 3)
CERTIFY_NORMED(int5g32, 5, true, 3)
CERTIFY_NORMED(int4g32, 4, true, 3)
