// Certificates of inactivity, docs/certificates.md: the rounded input of a pass, and which neurons a low-bit copy of a first
// projection cannot prove inactive. Whole-number products are exact, so that their order is free; what is left is a little
// binary64 for each input row and each neuron. Where the rows of the matrix can be read, the same launch computes the
// neurons that stay uncertain.
#include "memory.cuh"
#include "norms.cuh"

constexpr int lowBitGroup = 32;
constexpr int mostRounded = 32767;
constexpr int mostDirections = 64;
constexpr int scalarsOfRow = 8;

__device__ __forceinline__ f64 powerOfTwo(int exponent) { return __longlong_as_double((i64)(1023 + exponent) << 52); }

// floor(log2 value) of a positive number, and -126 for those below 2^-126, zero among them.
__device__ __forceinline__ int exponentOf(f64 value) { return max(-126, (int)(__double_as_longlong(value) >> 52) - 1023); }

__device__ __forceinline__ int roundedWhole(f64 value) {
  const f64 near = rint(value);
  return (int)(near > (f64)mostRounded ? (f64)mostRounded : near < -(f64)mostRounded ? -(f64)mostRounded : near);
}

struct RoundInputParams {
  i64 inputs;
  i64 directions;
  i64 directionExponent;
  f64 inflation; // 1 + (K + 4) 2^-52
  f64 gamma;     // of the block rule
  f64 constant;  // K 2^-149
  float *x;      // [rows, inputs]
  const short *basis; // [directions, padded inputs]
  f64 *scalars;
  short *rounded;
  short *components;
  i64 blocksPerRound; // of 128 inputs in shared memory
  // A norm whose result is x: -1 for none, 0 layer, 1 RMS. All blocks are in one round then.
  i64 norm;
  f64 epsilon;
  const float *from;
  const float *scale;
  const float *shift;
};

// Numbers from one block of 128 of binary64 to the next: neighbouring blocks then meet different banks.
constexpr int wideBlock = blockInputs + 1;

template <class Value, class Join> __device__ __forceinline__ Value joinThreads(Value value, Value *room, Join join) {
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2)
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  if (lane == 0) room[warp] = value;
  __syncthreads();
  value = room[0];
  for (int w = 1; w < warps; w++) value = join(value, room[w]);
  __syncthreads();
  return value;
}

// A block of threads for each row.
__device__ __forceinline__ void roundInput(const RoundInputParams &p) {
  enterKernel();
  extern __shared__ __align__(16) float shared[];
  const int inputs = (int)p.inputs, padded = (inputs + lowBitGroup - 1) / lowBitGroup * lowBitGroup;
  const int directions = (int)p.directions, perRound = (int)p.blocksPerRound, threads = blockDim.x;
  const int blocks = (inputs + blockInputs - 1) / blockInputs, rounds = (blocks + perRound - 1) / perRound;
  const int warps = threads / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  f64 *sums = (f64 *)shared;                      // [2][perRound]
  i64 *exact = (i64 *)(sums + 2 * perRound);      // [64]
  i64 *joined = exact + mostDirections;           // [32]
  int *whole = (int *)(joined + 32);              // [64]
  float *row = (float *)(whole + mostDirections); // [perRound] blocks of floats, padded
  f64 *wide = (f64 *)(row + perRound * paddedBlock); // [perRound] blocks of binary64
  float *x = p.x + (i64)blockIdx.x * inputs;
  f64 *scalars = p.scalars + (i64)blockIdx.x * scalarsOfRow;
  short *rounded = p.rounded + (i64)blockIdx.x * padded;
  short *components = p.components + (i64)blockIdx.x * directions;
  const auto bring = [&](const float *from, int round) {
    const int begin = round * perRound * blockInputs;
    loadPaddedRows(row, 0, 1, from + begin, 0, 1, min(inputs - begin, perRound * blockInputs));
    __syncthreads();
  };

  float largest = 0.0f;
  if (p.norm >= 0) {
    bring(p.from + (i64)blockIdx.x * inputs, 0);
    const bool rms = p.norm == 1;
    const NormScale scale = normScale(row, (float *)sums, inputs, rms, (float)p.epsilon);
    for (int i = threadIdx.x; i < inputs; i += threads) {
      const float y = normed(row[paddedIndex(i)], scale, rms, p.scale, p.shift, i);
      row[paddedIndex(i)] = y;
      x[i] = y;
    }
    __syncthreads();
  }
  for (int round = 0; round < rounds; round++) {
    if (p.norm < 0) bring(x, round);
    const int begin = round * perRound * blockInputs, count = min(inputs - begin, perRound * blockInputs);
    for (int i = threadIdx.x; i < count; i += threads) {
      const float size = magnitudeOf(row[paddedIndex(i)]);
      if (!(size <= largest)) largest = size == size ? size : __uint_as_float(0x7f800000u);
    }
    if (rounds > 1) __syncthreads();
  }
  largest = joinThreads(largest, (float *)joined, [](float a, float b) { return a > b ? a : b; });
  if (largest == __uint_as_float(0x7f800000u)) {
    for (int i = threadIdx.x; i < padded; i += threads) rounded[i] = 0;
    for (int j = threadIdx.x; j < directions; j += threads) components[j] = 0;
    if (threadIdx.x < scalarsOfRow) scalars[threadIdx.x] = threadIdx.x == 7 ? (f64)largest : 0.0;
    return;
  }

  const int exponent = exponentOf((f64)largest) - 14;
  const f64 scale = powerOfTwo(exponent), inverse = powerOfTwo(-exponent);
  f64 xSquares = 0.0, missedSquares = 0.0;
  i64 squares = 0;
  for (int round = 0; round < rounds; round++) {
    if (rounds > 1) bring(x, round);
    const int firstBlock = round * perRound, begin = firstBlock * blockInputs;
    const int here = min(perRound, blocks - firstBlock), count = min(inputs - begin, here * blockInputs);
    for (int i = threadIdx.x; i < count; i += threads) {
      const f64 value = (f64)row[paddedIndex(i)];
      const int near = roundedWhole(value * inverse);
      const f64 missed = value - (f64)near * scale;
      rounded[begin + i] = (short)near;
      squares += (i64)near * near;
      wide[i / blockInputs * wideBlock + i % blockInputs] = missed * missed;
    }
    __syncthreads();
    // Even warps take the blocks of one sum, odd ones those of the other.
    for (int block = warp / 2 * 32 + lane; block < here; block += warps / 2 * 32) {
      const int inBlock = min(blockInputs, count - block * blockInputs);
      const float *values = row + block * paddedBlock;
      const f64 *missed = wide + block * wideBlock;
      f64 acc = 0.0;
      if (warp % 2 == 0) {
#pragma unroll 16
        for (int i = 0; i < inBlock; i++) acc = acc + (f64)values[i] * (f64)values[i];
        sums[block] = acc;
      } else {
#pragma unroll 16
        for (int i = 0; i < inBlock; i++) acc = acc + missed[i];
        sums[here + block] = acc;
      }
    }
    __syncthreads();
    for (int block = 0; block < here; block++) {
      xSquares = xSquares + sums[block];
      missedSquares = missedSquares + sums[here + block];
    }
    __syncthreads();
  }
  for (int i = inputs + threadIdx.x; i < padded; i += threads) rounded[i] = 0;
  const f64 xNorm = sqrt(xSquares) * p.inflation;
  const f64 ofWeights = p.gamma * xNorm + sqrt(missedSquares) * p.inflation;
  if (directions == 0) {
    squares = joinThreads(squares, joined, [](i64 a, i64 b) { return a + b; });
    if (threadIdx.x == 0) {
      scalars[0] = scale;
      scalars[1] = 0.0;
      scalars[2] = ofWeights;
      scalars[3] = sqrt((f64)squares) * scale * p.inflation;
      scalars[4] = 0.0;
      scalars[5] = 0.0;
      scalars[6] = p.constant;
      scalars[7] = xNorm;
    }
    return;
  }

  __syncthreads(); // the rounded inputs of other threads
  for (int j = warp; j < directions; j += warps) {
    const short *basis = p.basis + (i64)j * padded;
    i64 sum = 0;
    for (int i = 2 * lane; i < padded; i += 64) {
      const u32 a = *(const u32 *)(basis + i), b = *(const u32 *)(rounded + i);
      sum += (i64)((int)(short)a * (int)(short)b) + (i64)((int)a >> 16) * ((int)b >> 16);
    }
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane == 0) exact[j] = sum;
  }
  __syncthreads();
  i64 largestComponent = 0;
  for (int j = 0; j < directions; j++) largestComponent = max(largestComponent, exact[j] < 0 ? -exact[j] : exact[j]);
  const int shiftExponent = max(0, exponentOf((f64)largestComponent) - 14);
  const f64 shift = powerOfTwo(shiftExponent), shiftInverse = powerOfTwo(-shiftExponent);
  for (int j = threadIdx.x; j < directions; j += threads) {
    whole[j] = roundedWhole((f64)exact[j] * shiftInverse);
    components[j] = (short)whole[j];
  }
  __syncthreads();
  const int t = (int)p.directionExponent;
  const f64 unit = scale * powerOfTwo(-t), two = powerOfTwo(2 * t);
  f64 outsideSquares = 0.0;
  for (int round = 0; round < rounds; round++) {
    const int firstBlock = round * perRound, begin = firstBlock * blockInputs;
    const int here = min(perRound, blocks - firstBlock), count = min(inputs - begin, here * blockInputs);
    for (int i = threadIdx.x; i < count; i += threads) {
      const short *basis = p.basis + begin + i;
      i64 inside = 0;
#pragma unroll 8
      for (int j = 0; j < directions; j++) inside += (i64)basis[(i64)j * padded] * whole[j];
      const f64 y = (f64)rounded[begin + i] * two - (f64)inside * shift;
      wide[i / blockInputs * wideBlock + i % blockInputs] = y * y;
    }
    __syncthreads();
    for (int block = threadIdx.x; block < here; block += threads) {
      const int inBlock = min(blockInputs, count - block * blockInputs);
      f64 acc = 0.0;
#pragma unroll 8
      for (int i = 0; i < inBlock; i++) acc = acc + wide[block * wideBlock + i];
      sums[block] = acc;
    }
    __syncthreads();
    for (int block = 0; block < here; block++) outsideSquares = outsideSquares + sums[block];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    f64 componentSquares = 0.0, missed = 0.0;
    for (int j = 0; j < directions; j++) {
      const f64 value = (f64)whole[j], rest = (f64)exact[j] - value * shift;
      componentSquares = componentSquares + value * value;
      missed = missed + rest * rest;
    }
    const f64 inflation = 1.0 + (f64)(mostDirections + 4) * powerOfTwo(-52), componentScale = unit * shift;
    scalars[0] = scale;
    scalars[1] = componentScale;
    scalars[2] = ofWeights;
    scalars[3] = sqrt(outsideSquares) * (unit * powerOfTwo(-t)) * p.inflation;
    scalars[4] = sqrt(componentSquares) * componentScale * inflation;
    scalars[5] = sqrt(missed) * unit * inflation;
    scalars[6] = p.constant;
    scalars[7] = xNorm;
  }
}

extern "C" __global__ void __launch_bounds__(512) round_input(const RoundInputParams p) { roundInput(p); }

struct CertifyParams {
  i64 rows;
  i64 inputs;
  i64 outputs;
  i64 directions;
  f64 threshold;
  const f64 *scalars; // of `round-input`, as the next two
  const short *rounded;
  const short *projected;
  const float *records; // of the copy, as the next four
  const void *codes;
  const void *high;
  const void *groupScales;
  const void *components;
  const float *bias;
  float *out;
  i64 depth;      // stages of a warp's ring
  i64 warpBytes;  // of a warp's ring and, later, row
  i64 mostTurns;  // of a block of threads: two neurons each
  i64 prefetchBytes; // of the codes of a block of threads, asked for before the inputs are there
  // The product with the rows of uncertain neurons: -1 for none, 0 F32, 1 F16, 2 BF16.
  i64 weights;
  const void *matrix; // output-major
  i64 rowStride;
  const float *x; // [rows, inputs]
  float *flags;   // [outputs]: 1 where a neuron is uncertain in some row
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 activationThreshold;
  i64 rowBlocks; // of 128 inputs that a warp's room holds at once
};

// As copyAside, for 4 or 8 bytes.
template <int bytes> __device__ __forceinline__ void copyFew(void *shared, const void *source) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(source),
               "n"(bytes)
               : "memory");
#else
  for (int i = 0; i < bytes / 4; i++) ((u32 *)shared)[i] = ((const u32 *)source)[i];
#endif
}

// acc + the four products of the bytes of a and b; b is signed in the first, not in the second, and nothing is in the last.
__device__ __forceinline__ int dotSigned(u32 a, u32 b, int acc) {
  asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(acc) : "r"(a), "r"(b));
  return acc;
}
__device__ __forceinline__ int dotUnsigned(u32 a, u32 b, int acc) {
  asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(acc) : "r"(a), "r"(b));
  return acc;
}

__device__ __forceinline__ u32 wordOf(uint4 four, int i) { return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w; }

// The row of an uncertain neuron times the inputs of R rows, by one warp: a lane takes whole blocks of 128 inputs.
template <class E, int R>
__device__ __forceinline__ void uncertainRow(const CertifyParams &p, int neuron, const float *x, int xFloats, char *room, float *partial) {
  typedef typename E::Stored Stored;
  constexpr int size = sizeof(Stored), perPiece = 16 / size, blockPieces = blockInputs / perPiece;
  constexpr int blockBytes = blockInputs * size + 16; // neighbouring lanes meet different banks
  constexpr int batch = 8;
  const int inputs = (int)p.inputs, blocks = (inputs + blockInputs - 1) / blockInputs, rowBlocks = (int)p.rowBlocks;
  const int lane = threadIdx.x % 32, rows = (int)p.rows;
  const uint4 *row = (const uint4 *)((const Stored *)p.matrix + (i64)neuron * p.rowStride);
  float y = 0.0f; // of row `lane`
  for (int begin = 0; begin < blocks; begin += rowBlocks) {
    const int here = min(rowBlocks, blocks - begin);
    const int firstPiece = begin * blockPieces, pieces = min(inputs / perPiece - firstPiece, here * blockPieces);
    for (int first = lane; first < pieces; first += batch * 32) {
      uint4 four[batch];
#pragma unroll
      for (int k = 0; k < batch; k++)
        if (first + k * 32 < pieces) four[k] = row[firstPiece + first + k * 32];
#pragma unroll
      for (int k = 0; k < batch; k++) {
        const int piece = first + k * 32;
        if (piece < pieces) *(uint4 *)(room + piece / blockPieces * blockBytes + piece % blockPieces * 16) = four[k];
      }
    }
    __syncwarp();
    if (lane < here) {
      const int count = min(blockInputs, inputs - (begin + lane) * blockInputs);
      const char *own = room + lane * blockBytes;
      const float *values = x + (begin + lane) * paddedBlock;
      float acc[R];
#pragma unroll
      for (int r = 0; r < R; r++) acc[r] = 0.0f;
#pragma unroll 4
      for (int i = 0; i < count; i += perPiece) {
        const Packed<E, perPiece> w = loadPacked<E, perPiece>((const Stored *)(own + i * size));
#pragma unroll
        for (int k = 0; k < perPiece; k += 4) {
#pragma unroll
          for (int r = 0; r < R; r++) {
            const float4 four = *reinterpret_cast<const float4 *>(values + r * xFloats + i + k);
            acc[r] = acc[r] + four.x * w.at(k);
            acc[r] = acc[r] + four.y * w.at(k + 1);
            acc[r] = acc[r] + four.z * w.at(k + 2);
            acc[r] = acc[r] + four.w * w.at(k + 3);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++) partial[r * 32 + lane] = acc[r];
    }
    __syncwarp();
    if (lane < R)
      for (int block = 0; block < here; block++) y = y + partial[lane * 32 + block];
    __syncwarp(); // before the room is written again
  }
  if (lane >= rows) return;
  if (p.bias) y = y + p.bias[neuron];
  if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.activationThreshold);
  p.out[(i64)lane * p.outputs + neuron] = y;
}

// Whether it is proven that the pre-activation is not above the threshold; docs/certificates.md, "The bound".
__device__ __forceinline__ bool isInactive(const f64 *scalars, const float *record, bool hasDirections, f64 product, f64 inside,
                                           f64 bias, f64 threshold) {
  const f64 weights = (f64)record[1];
  const f64 s = scalars[0] * (f64)record[0] * product;
  f64 margin = scalars[6] + scalars[2] * weights + scalars[3] * (f64)record[2];
  f64 along = 0.0;
  if (hasDirections) {
    along = scalars[1] * (f64)record[3] * inside;
    margin = margin + scalars[4] * (f64)record[4] + scalars[5] * (f64)record[5];
  }
  const f64 magnitude = fabs(s) + fabs(along) + fabs(bias) + margin;
  const f64 bound = s + along + bias + margin + powerOfTwo(-40) * magnitude;
  return scalars[7] * weights < powerOfTwo(126) && bound < threshold;
}

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
        u32 first[4], second[4]; // codes 0..15 and 16..31, as bytes
        u32 over[2] = {0, 0};
        if constexpr (bits == 5) over[0] = *(const u32 *)(stage + 512 + lane * 4);
        if constexpr (bits == 6) {
          const uint2 two = *(const uint2 *)(stage + 512 + lane * 8);
          over[0] = two.x;
          over[1] = two.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const u32 word = wordOf(code, i);
          first[i] = word & 0x0f0f0f0fu;
          second[i] = word >> 4 & 0x0f0f0f0fu;
          if constexpr (bits == 5) {
            first[i] |= ((over[0] >> (4 * i) & 15u) * 0x00204081u & 0x01010101u) << 4;
            second[i] |= ((over[0] >> (16 + 4 * i) & 15u) * 0x00204081u & 0x01010101u) << 4;
          }
          if constexpr (bits == 6) {
            first[i] |= (over[i % 2] >> (i / 2 * 2) & 0x03030303u) << 4;
            second[i] |= (over[i % 2] >> (4 + i / 2 * 2) & 0x03030303u) << 4;
          }
        }
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
