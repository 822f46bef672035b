// Certificates of inactivity, docs/certificates.md: the rounded input of a pass, and which neurons a low-bit copy of a first
// projection cannot prove inactive. Whole-number products are exact, so that their order is free; what is left is a little
// binary64 for each input row and each neuron. Where the rows of the matrix can be read, the same launch computes the
// neurons that stay uncertain.
#include "memory.cuh"
#include "norms.cuh"

#include "round-input.cuh"
#include "uncertain-rows.cuh"
extern "C" __global__ void __launch_bounds__(512) round_input(const RoundInputParams p) { roundInput(p); }

// A block of threads takes adjacent neurons, a warp two of them a turn, each half of it one. A warp's codes come through a
// ring of its own, which fills before the inputs are there. An input n is 256 * high + low, so that codes of 8 bits meet
// bytes; codes of fewer bits are taken as they are stored, unsigned, and what that adds is subtracted by the sum of each
// group's inputs.
template <int bits, bool groups, int R> __device__ __forceinline__ void certifyRows(const CertifyParams &p) {
  constexpr int lanes = 16, pieces = bits == 8 ? 1 : 2, codesOfLane = 16 * pieces;
  constexpr int highBytes = bits == 8 ? 0 : (bits - 4) * 4, lanesOfGroup = bits == 8 ? 2 : 1;
  constexpr int scaleBytes = groups ? lanes / lanesOfGroup : 0; // of a neuron and stage
  constexpr int stageBytes = 512 + 32 * highBytes + 2 * scaleBytes;
  static_assert(stageBytes % 16 == 0 && (groups || bits == 8), "stages lie at multiples of 16 bytes");
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  const int rows = (int)p.rows, inputs = (int)p.inputs, outputs = (int)p.outputs, directions = (int)p.directions;
  const int depth = (int)p.depth, warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int half = lane / lanes, own = lane % lanes, threads = blockDim.x;
  const int padded = (inputs + lowBitGroup - 1) / lowBitGroup * lowBitGroup, units = padded / codesOfLane;
  const int steps = (units + lanes - 1) / lanes, unitsKept = steps * lanes;
  const int recordFloats = directions > 0 ? 8 : 4;
  const int groupRowBytes = groups ? (padded / lowBitGroup + 3) / 4 * 4 : 0;
  const int allTurns = (outputs + 1) / 2;
  const int firstTurn = (int)((i64)allTurns * blockIdx.x / gridDim.x);
  const int turns = (int)((i64)allTurns * (blockIdx.x + 1) / gridDim.x) - firstTurn;
  const int firstNeuron = 2 * firstTurn, neurons = min(2 * turns, outputs - firstNeuron);
  const int kept = 2 * (int)p.mostTurns;
  char *const ring = (char *)shared + warp * p.warpBytes;
  char *after = (char *)shared + warps * p.warpBytes;
  uint4 *high = (uint4 *)after;                      // [R][pieces][unitsKept], 16 bytes of n >> 8
  uint4 *low = high + R * pieces * unitsKept;        // likewise, of n & 255
  f64 *scalars = (f64 *)(low + R * pieces * unitsKept);
  float *records = (float *)(scalars + R * scalarsOfRow);   // [kept][recordFloats]
  uint4 *projectedHigh = (uint4 *)(records + kept * recordFloats); // [R][4]
  uint4 *projectedLow = projectedHigh + R * 4;       // [R][4]
  float *biases = (float *)(projectedLow + R * 4);   // [kept]
  int *groupSums = (int *)(biases + kept);           // [R][unitsKept]
  float *partial = (float *)(groupSums + (bits == 8 ? 0 : R * unitsKept)); // [warps][R][32]
  u16 *uncertain = (u16 *)(partial + (p.weights >= 0 ? warps * R * 32 : 0)); // [kept], then their list
  const int xFloats = (inputs + blockInputs - 1) / blockInputs * paddedBlock;
  float *x = (float *)(uncertain + 2 * kept); // [R][blocks of 128, padded]; kept is even

  const int mine = turns > warp ? (turns - warp + warps - 1) / warps : 0, total = mine * steps;
  const i64 codeRow = bits == 8 ? padded : padded / 2, highRow = (i64)units * highBytes;
  int askedPart = 0, askedNeuron = firstNeuron + 2 * warp + half;
  char *target = ring;
  const auto issue = [&]() {
    const int unit = askedPart * lanes + own;
    if (askedNeuron < outputs) {
      if (unit < units) {
        copyAside(target + lane * 16, (const char *)p.codes + askedNeuron * codeRow + unit * 16, 16);
        if constexpr (highBytes > 0)
          copyFew<highBytes>(target + 512 + lane * highBytes, (const char *)p.high + askedNeuron * highRow + unit * highBytes);
      }
      if constexpr (groups) {
        const int from = askedPart * scaleBytes + own * 4;
        if (own * 4 < scaleBytes && from < groupRowBytes)
          copyFew<4>(target + 512 + 32 * highBytes + half * scaleBytes + own * 4,
                     (const char *)p.groupScales + (i64)askedNeuron * groupRowBytes + from);
      }
    }
    if (++askedPart == steps) {
      askedPart = 0;
      askedNeuron += 2 * warps;
    }
    target += stageBytes;
    if (target == ring + depth * stageBytes) target = ring;
  };
  for (int step = 0; step < depth - 1; step++) {
    if (step < total) issue();
    endCopyGroup();
  }
  if (p.prefetchBytes > 0 && neurons > 0) {
    const i64 asked = p.prefetchBytes < neurons * codeRow ? p.prefetchBytes : neurons * codeRow;
    prefetchBytes((const char *)p.codes + firstNeuron * codeRow, asked);
  }
  for (int i = threadIdx.x; i < neurons * recordFloats; i += threads)
    records[i] = p.records[(i64)firstNeuron * recordFloats + i];
  for (int i = threadIdx.x; i < neurons; i += threads) biases[i] = p.bias ? p.bias[firstNeuron + i] : 0.0f;
  awaitPredecessor();

  // The two pieces of a unit of 32 lie apart, so that lanes read adjacent 16 bytes of each.
  for (int at = threadIdx.x; at < R * unitsKept; at += threads) {
    const int r = at / unitsKept, unit = at % unitsKept;
    const bool there = r < rows && unit < units;
    const uint4 *from = (const uint4 *)(p.rounded + (i64)r * padded + unit * codesOfLane);
    int highTotal = 0, lowTotal = 0;
#pragma unroll
    for (int piece = 0; piece < pieces; piece++) {
      u32 highs[4] = {0, 0, 0, 0}, lows[4] = {0, 0, 0, 0};
      if (there) {
        const uint4 a = from[2 * piece], b = from[2 * piece + 1];
#pragma unroll
        for (int i = 0; i < 4; i++) { // of each input the upper byte, and the lower one
          const u32 left = wordOf(i < 2 ? a : b, i % 2 * 2), right = wordOf(i < 2 ? a : b, i % 2 * 2 + 1);
          lows[i] = __byte_perm(left, right, 0x6420);
          highs[i] = __byte_perm(left, right, 0x7531);
          if constexpr (bits < 8) {
            highTotal = dotSigned(0x01010101u, highs[i], highTotal);
            lowTotal = dotUnsigned(0x01010101u, lows[i], lowTotal);
          }
        }
      }
      const int place = (r * pieces + piece) * unitsKept + unit;
      high[place] = make_uint4(highs[0], highs[1], highs[2], highs[3]);
      low[place] = make_uint4(lows[0], lows[1], lows[2], lows[3]);
    }
    if constexpr (bits < 8) groupSums[at] = 256 * highTotal + lowTotal;
  }
  for (int at = threadIdx.x; at < R * mostDirections; at += threads) {
    const int r = at / mostDirections, j = at % mostDirections;
    const int value = r < rows && j < directions ? p.projected[(i64)r * directions + j] : 0;
    ((char *)projectedHigh)[at] = (char)(value >> 8);
    ((char *)projectedLow)[at] = (char)(value & 255);
  }
  for (int at = threadIdx.x; at < R * scalarsOfRow; at += threads)
    scalars[at] = at / scalarsOfRow < rows ? p.scalars[at] : 0.0;
  if (p.weights >= 0) loadPaddedRows(x, xFloats, R, p.x, inputs, rows, inputs);
  __syncthreads();

  const char *stage = ring;
  int step = 0;
#pragma unroll 1
  for (int turn = 0; turn < mine; turn++) {
    const int local = 2 * (turn * warps + warp) + half, neuron = firstNeuron + local;
    uint4 component = make_uint4(0, 0, 0, 0);
    if (own < directions / 16 && neuron < outputs)
      component = *(const uint4 *)((const char *)p.components + (i64)neuron * directions + own * 16);
    int highSum[R], lowSum[R];
    i64 sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
      highSum[r] = lowSum[r] = 0;
      sum[r] = 0;
    }
#pragma unroll 1
    for (int part = 0; part < steps; part++, step++) {
      awaitOldest(depth);
      __syncwarp(); // other lanes' copies have landed, and all lanes have read the stage before
      if (step + depth - 1 < total) issue();
      endCopyGroup();
      const uint4 code = *(const uint4 *)(stage + lane * 16);
      const int unit = part * lanes + own;
      int factor = 1;
      if constexpr (groups) factor = ((const unsigned char *)stage)[512 + 32 * highBytes + half * scaleBytes + own / lanesOfGroup];
      if constexpr (bits == 8) {
#pragma unroll
        for (int r = 0; r < R; r++) {
          const uint4 above = high[r * unitsKept + unit], below = low[r * unitsKept + unit];
          int a = groups ? 0 : highSum[r], b = groups ? 0 : lowSum[r];
#pragma unroll
          for (int i = 0; i < 4; i++) {
            a = dotSigned(wordOf(code, i), wordOf(above, i), a);
            b = dotUnsigned(wordOf(code, i), wordOf(below, i), b);
          }
          if constexpr (groups) {
            sum[r] += (i64)factor * (256 * a + b);
          } else {
            highSum[r] = a;
            lowSum[r] = b;
          }
        }
      } else {
        u32 first[4], second[4], over[2] = {0, 0};
        if constexpr (bits == 5) over[0] = *(const u32 *)(stage + 512 + lane * 4);
        if constexpr (bits == 6) {
          const uint2 two = *(const uint2 *)(stage + 512 + lane * 8);
          over[0] = two.x;
          over[1] = two.y;
        }
        unpackCodes<bits>(code, over, first, second);
#pragma unroll
        for (int r = 0; r < R; r++) {
          const uint4 *highs = high + r * 2 * unitsKept + unit, *lows = low + r * 2 * unitsKept + unit;
          const uint4 above0 = highs[0], above1 = highs[unitsKept], below0 = lows[0], below1 = lows[unitsKept];
          int a = 0, b = 0;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            a = dotSigned(first[i], wordOf(above0, i), a);
            a = dotSigned(second[i], wordOf(above1, i), a);
            b = dotUnsigned(first[i], wordOf(below0, i), b);
            b = dotUnsigned(second[i], wordOf(below1, i), b);
          }
          sum[r] += (i64)factor * (256 * a + b - (1 << (bits - 1)) * groupSums[r * unitsKept + unit]);
        }
      }
      stage += stageBytes;
      if (stage == ring + depth * stageBytes) stage = ring;
    }

    f64 product = 0.0, inside = 0.0; // of row `own`
#pragma unroll
    for (int r = 0; r < R; r++) {
      if constexpr (!groups) sum[r] = (i64)highSum[r] * 256 + lowSum[r];
      int a = 0, b = 0;
      if (directions > 0) {
        const uint4 above = projectedHigh[r * 4 + own % 4], below = projectedLow[r * 4 + own % 4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          a = dotSigned(wordOf(component, i), wordOf(above, i), a);
          b = dotUnsigned(wordOf(component, i), wordOf(below, i), b);
        }
        a = 256 * a + b;
      }
#pragma unroll
      for (int distance = 1; distance < lanes; distance *= 2) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], distance);
        if (directions > 0) a += __shfl_xor_sync(0xffffffffu, a, distance);
      }
      if (own == r) {
        product = (f64)sum[r];
        inside = (f64)a;
      }
    }
    bool mark = false;
    if (own < rows && neuron < outputs) {
      mark = !isInactive(scalars + own * scalarsOfRow, records + local * recordFloats, directions > 0, product, inside,
                         (f64)biases[local], p.threshold);
      if (p.weights < 0) p.out[(i64)own * outputs + neuron] = mark ? 1.0f : 0.0f;
    }
    if (p.weights >= 0) {
      const u32 marks = __ballot_sync(0xffffffffu, mark) >> (half * lanes) & 0xffffu;
      if (neuron < outputs) {
        if (own < rows && marks == 0) p.out[(i64)own * outputs + neuron] = 0.0f;
        if (own == 0) {
          p.flags[neuron] = marks != 0 ? 1.0f : 0.0f;
          uncertain[local] = marks != 0;
        }
      }
    }
  }
  if (p.weights < 0) return;
  if constexpr (R <= 4) {
    awaitCopyGroups<0>();
    __syncthreads();
    // Every warp makes the list for itself: all write the same.
    u16 *list = uncertain + kept;
    int count = 0;
    for (int first = 0; first < neurons; first += 32) {
      const bool found = first + lane < neurons && uncertain[first + lane] != 0;
      const u32 all = __ballot_sync(0xffffffffu, found);
      if (found && warp == 0) list[count + __popc(all & ((1u << lane) - 1))] = (u16)(first + lane);
      count += __popc(all);
    }
    __syncthreads();
    for (int i = warp; i < count; i += warps) {
      const int neuron = firstNeuron + list[i];
      float *sums = partial + warp * R * 32;
      if (p.weights == 0) uncertainRow<F32, R>(p, neuron, x, xFloats, ring, sums);
      else if (p.weights == 1) uncertainRow<F16, R>(p, neuron, x, xFloats, ring, sums);
      else uncertainRow<Bf16, R>(p, neuron, x, xFloats, ring, sums);
    }
  }
}

#define CERTIFY(name, bits, groups, R)                                                                                 \
  extern "C" __global__ void __launch_bounds__(512, 1) certify_##name##_r##R(const CertifyParams p) {                  \
    certifyRows<bits, groups, R>(p);                                                                                   \
  }
#define CERTIFY_OF(name, bits, groups)                                                                                 \
  CERTIFY(name, bits, groups, 1) CERTIFY(name, bits, groups, 2) CERTIFY(name, bits, groups, 4) CERTIFY(name, bits, groups, 8)
CERTIFY_OF(int8, 8, false)
CERTIFY_OF(int8g32, 8, true)
CERTIFY_OF(int6g32, 6, true)
CERTIFY_OF(int5g32, 5, true)
CERTIFY_OF(int4g32, 4, true)
