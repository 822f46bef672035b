#pragma once
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
