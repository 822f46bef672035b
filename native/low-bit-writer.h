// Rows of low-bit copies: the bytes of `LowBitCopyWriter` in src/checkpoint/low-bit-copy.ts, whose order of binary64 additions
// every sum here keeps; lanes are directions, candidates of a scale or elements, never terms of one sum. Included inside the
// anonymous namespace of a unit.
#pragma once

// As wide as the registers: compilers pass wider vectors through memory.
#if defined(__AVX512F__)
enum { doubleLanes = 8 };
#elif defined(__AVX2__)
enum { doubleLanes = 4 };
#else
enum { doubleLanes = 2 };
#endif
typedef double D __attribute__((vector_size(doubleLanes * 8)));

// Four rows share what is loaded of a direction; sums of all of them stay in registers.
enum { rowsTogether = 4, directionLanes = 2 * doubleLanes, elementTile = 128, shrinkageCount = 7, shrinkageLanes = 8 };

// Word k of `wb_low_bit_rows`; offsets are bytes from the begin of the copy.
struct LowBitTarget {
  size_t inputs, padded, begin, end;
  int bits, type;
  bool grouped;
  size_t directions;
  double unit;
  uint8_t *records, *codes, *high, *groupScales;
  size_t recordFloats, codeRowBytes, highRowBytes, groupRowBytes;
  int8_t *components;
};

static LowBitTarget lowBitTargetOf(const double *w, uint8_t *copy) {
  LowBitTarget t;
  t.inputs = (size_t)w[0];
  t.padded = roundUp(t.inputs, groupInputs);
  t.bits = (int)w[1];
  t.grouped = w[2] != 0.0;
  t.directions = (size_t)w[3];
  t.unit = powerOfTwo(-(int)w[4]);
  t.type = (int)w[5];
  t.begin = (size_t)w[6];
  t.end = (size_t)w[7];
  t.records = copy + (size_t)w[8];
  t.recordFloats = (size_t)w[9];
  t.codes = copy + (size_t)w[10];
  t.codeRowBytes = (size_t)w[11];
  t.high = copy + (size_t)w[12];
  t.highRowBytes = (size_t)w[13];
  t.groupScales = copy + (size_t)w[14];
  t.groupRowBytes = (size_t)w[15];
  t.components = (int8_t *)copy + (size_t)w[16];
  return t;
}

// The least binary32 number that is not below a non-negative one.
static inline float roundedUp(double value) {
  const float near = (float)value;
  return (double)near >= value ? near : floatOfBits(bitsOfFloat(near) + 1);
}

static inline double nearestWhole(double value) {
  const double shift = 6755399441055744.0; // 1.5 * 2^52
  return (value + shift) - shift;
}

static inline double within(double value, double low, double high) {
  value = value > low ? value : low;
  return value < high ? value : high;
}

static inline double largestMagnitude(const float *weights, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; i++) {
    const uint32_t bits = bitsOfFloat(weights[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return (double)floatOfBits(largest);
}

// Half a step goes up.
static inline double nearestUp(double value) {
  const double whole = __builtin_floor(value);
  return value - whole >= 0.5 ? whole + 1.0 : whole;
}

// One row in the room of a call.
struct LowBitRow {
  float *weights;    // [padded], the padding 0
  int8_t *codes;     // [padded]
  uint8_t *scales;   // [padded / 32]
  double *residual;  // [padded], the padding 0
  float scale, norm; // of the row
  double missed;     // |E|, inflated
};

static void encode(const float *weights, size_t count, double step, double least, double most, double *codes,
                   double *missed, size_t stride) {
  for (size_t i = 0; i < count; i++) {
    const double weight = (double)weights[i];
    const double code = within(nearestWhole(weight / step), least, most);
    const double rest = weight - step * code;
    codes[i] = code;
    missed[i * stride] = rest * rest;
  }
}

// Factors of the row's scale are tried side by side; of equal errors the first wins.
static void quantiseGroup(const LowBitTarget &t, LowBitRow &row, size_t begin, size_t count) {
  static const double shrinkages[shrinkageCount] = {1, 0.97, 0.94, 0.9, 0.86, 0.82, 0.77};
  const double most = (double)((1 << (t.bits - 1)) - 1), least = t.bits == 8 ? -most : -most - 1.0;
  const float *weights = row.weights + begin;
  const double whole = largestMagnitude(weights, count) / most / (double)row.scale;
  const int tries = t.bits == 8 ? 1 : shrinkageCount;
  double factors[shrinkageCount], codes[shrinkageCount][groupInputs], missed[groupInputs * shrinkageLanes] = {};
  for (int k = 0; k < tries; k++) {
    const double wanted = k == 0 ? __builtin_ceil(whole) : nearestUp(whole * shrinkages[k]);
    factors[k] = k == 0 ? (wanted < 255.0 ? wanted : 255.0) : (wanted > 1.0 ? wanted : 1.0);
    const double step = (double)row.scale * factors[k];
    if (step == 0.0) {
      for (size_t i = 0; i < count; i++) {
        const double weight = (double)weights[i];
        codes[k][i] = 0.0;
        missed[i * shrinkageLanes + (size_t)k] = weight * weight;
      }
    } else {
      encode(weights, count, step, least, most, codes[k], missed + k, shrinkageLanes);
    }
  }
  double sums[shrinkageLanes] = {};
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < shrinkageLanes; k++) sums[k] = sums[k] + missed[i * shrinkageLanes + k];
  int best = 0;
  for (int k = 1; k < tries; k++)
    if (sums[k] < sums[best]) best = k;
  row.scales[begin / groupInputs] = (uint8_t)factors[best];
  for (size_t i = 0; i < count; i++) row.codes[begin + i] = (int8_t)codes[best][i];
}

static void quantiseRow(const LowBitTarget &t, LowBitRow &row) {
  const double most = (double)((1 << (t.bits - 1)) - 1);
  const double largest = largestMagnitude(row.weights, t.inputs);
  row.scale = roundedUp(largest / most / (t.grouped ? 255.0 : 1.0));
  __builtin_memset(row.codes, 0, t.padded);
  __builtin_memset(row.scales, 1, t.padded / groupInputs);
  if (largest == 0.0) return;
  if (t.grouped) {
    for (size_t at = 0; at < t.inputs; at += groupInputs) quantiseGroup(t, row, at, least(groupInputs, t.inputs - at));
    return;
  }
  const double step = (double)row.scale;
  for (size_t i = 0; i < t.inputs; i++)
    row.codes[i] = (int8_t)within(nearestWhole((double)row.weights[i] / step), -most, most);
}

static void storeCodes(const LowBitTarget &t, const LowBitRow &row, size_t neuron) {
  uint8_t *low = t.codes + neuron * t.codeRowBytes;
  if (t.bits == 8) {
    __builtin_memcpy(low, row.codes, t.padded);
  } else {
    uint8_t *high = t.high + neuron * t.highRowBytes;
    const size_t highBytes = (size_t)(t.bits - 4) * 4;
    for (size_t at = 0; at < t.padded; at += groupInputs, low += 16, high += highBytes) {
      uint8_t u[groupInputs];
      for (size_t j = 0; j < groupInputs; j++) u[j] = (uint8_t)(row.codes[at + j] + (1 << (t.bits - 1)));
      for (size_t j = 0; j < 16; j++) low[j] = (uint8_t)((u[j] & 15) | (u[j + 16] & 15) << 4);
      __builtin_memset(high, 0, highBytes);
      if (t.bits == 5)
        for (size_t j = 0; j < groupInputs; j++) high[j >> 3] |= (uint8_t)((u[j] >> 4) << (j & 7));
      if (t.bits == 6)
        for (size_t j = 0; j < groupInputs; j++) high[j & 7] |= (uint8_t)((u[j] >> 4) << (2 * (j >> 3)));
    }
  }
  if (t.grouped) __builtin_memcpy(t.groupScales + neuron * t.groupRowBytes, row.scales, t.padded / groupInputs);
}

static inline double inflationOf(const LowBitTarget &t) { return 1.0 + (double)(t.inputs + 4) * powerOfTwo(-52); }

static void measureRow(const LowBitTarget &t, LowBitRow &row) {
  double squares = 0.0, missed = 0.0;
  for (size_t i = 0; i < t.padded; i++) {
    const double weight = (double)row.weights[i];
    row.residual[i] = weight - (double)row.scale * (double)row.scales[i / groupInputs] * (double)row.codes[i];
  }
  for (size_t i = 0; i < t.inputs; i++) {
    const double weight = (double)row.weights[i], rest = row.residual[i];
    squares = squares + weight * weight;
    missed = missed + rest * rest;
  }
  row.norm = roundedUp(__builtin_sqrt(squares) * inflationOf(t));
  row.missed = __builtin_sqrt(missed) * inflationOf(t);
}

// [r] of each row, lane by lane: the sums of its residual times a direction; `basis` is [r / lanes, K, lanes].
static void project(const LowBitTarget &t, const double *basis, const LowBitRow *rows, double *const *sums) {
  for (size_t j = 0; j < t.directions; j += directionLanes) {
    const double *tile = basis + j * t.inputs;
    D low[rowsTogether] = {}, high[rowsTogether] = {};
    for (size_t i = 0; i < t.inputs; i++, tile += directionLanes) {
      D first, second;
      __builtin_memcpy(&first, tile, sizeof first);
      __builtin_memcpy(&second, tile + doubleLanes, sizeof second);
      for (size_t k = 0; k < rowsTogether; k++) {
        const double rest = rows[k].residual[i];
        low[k] = low[k] + rest * first;
        high[k] = high[k] + rest * second;
      }
    }
    for (size_t k = 0; k < rowsTogether; k++) {
      __builtin_memcpy(sums[k] + j, &low[k], sizeof low[k]);
      __builtin_memcpy(sums[k] + j + doubleLanes, &high[k], sizeof high[k]);
    }
  }
}

struct Along {
  double sums[largestDirections], tails[largestDirections];
  float scale;
  double squares, outside;
};

// Takes what lies along the directions out of the residual; sums of whole numbers below 2^31 are exact in any order.
static void takeComponents(const LowBitTarget &t, const int16_t *elements, LowBitRow &row, Along &along,
                           int8_t *stored) {
  double largest = 0.0;
  for (size_t j = 0; j < t.directions; j++) {
    along.sums[j] = along.sums[j] * t.unit;
    const double magnitude = magnitudeOf(along.sums[j]);
    largest = magnitude > largest ? magnitude : largest;
  }
  along.scale = roundedUp(largest / 127.0);
  along.squares = 0.0;
  for (size_t j = 0; j < t.directions; j++) {
    const double code =
        along.scale == 0.0f ? 0.0 : within(nearestWhole(along.sums[j] / (double)along.scale), -127.0, 127.0);
    stored[j] = (int8_t)code;
    along.squares += code * code;
  }
  const double step = (double)along.scale * t.unit;
  double missed = 0.0;
  for (size_t begin = 0; begin < t.inputs; begin += elementTile) {
    const size_t count = least(elementTile, t.inputs - begin);
    int32_t inside[elementTile] = {};
    for (size_t j = 0; j < t.directions; j++) {
      const int16_t *direction = elements + j * t.padded + begin;
      const int32_t code = stored[j];
      for (size_t i = 0; i < count; i++) inside[i] += code * (int32_t)direction[i];
    }
    double *residual = row.residual + begin;
    for (size_t i = 0; i < count; i++) residual[i] = residual[i] - step * (double)inside[i];
    for (size_t i = 0; i < count; i++) missed = missed + residual[i] * residual[i];
  }
  along.outside = __builtin_sqrt(missed) * inflationOf(t) + row.missed * powerOfTwo(-50);
}

static void storeRecord(const LowBitTarget &t, const LowBitRow &row, const Along *along, double basisNorm,
                        size_t neuron) {
  float record[8] = {row.scale, row.norm, 0, 0, 0, 0, 0, 0};
  if (along == nullptr) {
    record[2] = roundedUp(row.missed);
  } else {
    double tails = 0.0;
    for (size_t j = 0; j < t.directions; j++) {
      const double tail = along->tails[j] * t.unit;
      tails = tails + tail * tail;
    }
    const double inflation = inflationOf(t);
    record[2] = roundedUp(along->outside);
    record[3] = along->scale;
    record[4] = roundedUp(__builtin_sqrt(tails) * inflation + (double)(t.inputs + 8) * powerOfTwo(-51) *
                                                                  (along->outside + row.missed) * basisNorm);
    record[5] = roundedUp(__builtin_sqrt(along->squares) * (double)along->scale * inflation);
  }
  __builtin_memcpy(t.records + neuron * t.recordFloats * 4, record, t.recordFloats * 4);
}

template <class E> static void widenRow(const E *from, size_t count, float *to) {
  for (size_t i = 0; i < count; i++) to[i] = widenOne(from + i);
}

static void widenStored(int type, const void *weights, size_t row, size_t inputs, float *to) {
  if (type == 0) widenRow((const float *)weights + row * inputs, inputs, to);
  if (type == 1) widenRow((const F16 *)weights + row * inputs, inputs, to);
  if (type == 2) widenRow((const Bf16 *)weights + row * inputs, inputs, to);
}

// Bytes of room that a call needs, zeroed.
static size_t lowBitRoomBytes(size_t inputs, size_t directions) {
  const size_t padded = roundUp(inputs, 64);
  return rowsTogether * padded * (sizeof(float) + sizeof(double) + 2) + padded * directions * sizeof(double);
}

static void lowBitRows(const double *words, const void *weights, const int16_t *elements, uint8_t *copy,
                       uint8_t *room) {
  const LowBitTarget t = lowBitTargetOf(words, copy);
  const size_t padded = roundUp(t.inputs, 64);
  double *basis = (double *)room;
  uint8_t *at = room + padded * t.directions * sizeof(double);
  LowBitRow rows[rowsTogether];
  for (LowBitRow &row : rows) {
    row.residual = (double *)at;
    row.weights = (float *)(at + padded * sizeof(double));
    row.codes = (int8_t *)(at + padded * (sizeof(double) + sizeof(float)));
    row.scales = (uint8_t *)row.codes + padded;
    at += padded * (sizeof(double) + sizeof(float) + 2);
  }
  double squares = 0.0; // whole, below 2^53
  for (size_t j = 0; j < t.directions; j++)
    for (size_t i = 0; i < t.inputs; i++) {
      const int16_t element = elements[j * t.padded + i];
      basis[(j / directionLanes * t.inputs + i) * directionLanes + j % directionLanes] = (double)element;
      squares += (double)element * (double)element;
    }
  const double basisNorm = __builtin_sqrt(squares) * t.unit * (1.0 + powerOfTwo(-50));
  for (size_t first = t.begin; first < t.end; first += rowsTogether) {
    const size_t count = least(rowsTogether, t.end - first);
    for (size_t k = 0; k < count; k++) {
      widenStored(t.type, weights, first - t.begin + k, t.inputs, rows[k].weights);
      quantiseRow(t, rows[k]);
      storeCodes(t, rows[k], first + k);
      measureRow(t, rows[k]);
    }
    if (t.directions == 0) {
      for (size_t k = 0; k < count; k++) storeRecord(t, rows[k], nullptr, basisNorm, first + k);
      continue;
    }
    Along along[rowsTogether];
    double *sums[rowsTogether], *tails[rowsTogether];
    for (size_t k = 0; k < rowsTogether; k++) {
      sums[k] = along[k].sums;
      tails[k] = along[k].tails;
    }
    project(t, basis, rows, sums);
    for (size_t k = 0; k < count; k++)
      takeComponents(t, elements, rows[k], along[k], t.components + (first + k) * t.directions);
    project(t, basis, rows, tails);
    for (size_t k = 0; k < count; k++) storeRecord(t, rows[k], &along[k], basisNorm, first + k);
  }
}
