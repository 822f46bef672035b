// quantised-linear: weights are codes of 8 or 4 bits times a BF16 scale, which is exact in binary32. A word holds the
// codes of 4 or 8 consecutive inputs of one output, so that lanes are outputs as everywhere. Included inside the
// anonymous namespace of a unit.
#pragma once

struct Quantised {
  size_t rows, inputs, outputs;
  const float *x;
  const uint32_t *codes; // [words, outputs]
  const Bf16 *scales;    // [groups, outputs]
  float *out;
  const float *bias, *residual;
};

template <int bits> struct Codes {
  enum { perWord = 32 / bits, wordsPerBlock = blockInputs / perWord, wordsPerGroup = 32 / perWord };
};

static inline U wordsAt(const uint32_t *from) {
  U words;
  __builtin_memcpy(&words, from, sizeof words);
  return words;
}

static inline F floatsOf(I integers) { return __builtin_convertvector(integers, F); }

// Code `k` of each word, sign and all.
template <int bits> static inline F codeOf(U words, int k) { return floatsOf((I)(words << (32 - bits * (k + 1))) >> (32 - bits)); }

// Scales of word row `word`: q8 has one for all inputs.
template <int bits> static inline const Bf16 *scalesOf(const Quantised *q, size_t word) {
  return bits == 8 ? q->scales : q->scales + word / Codes<bits>::wordsPerGroup * q->outputs;
}

// Adds `W` word rows, in order, to `count` accumulators of one row; a whole number of lanes.
template <int bits, int W>
static inline void addWords(const Quantised *q, size_t word, size_t from, const float *x, float *acc, size_t count) {
  enum { perWord = Codes<bits>::perWord };
  const Bf16 *scales = scalesOf<bits>(q, word) + from;
  const uint32_t *codes = q->codes + word * q->outputs + from;
  F xs[W * perWord];
  for (int k = 0; k < W * perWord; k++) xs[k] = splat(x[k]);
  for (size_t c = 0; c < count; c += lanes) {
    F a = load(acc + c);
    const F scale = widen(scales + c);
    for (int r = 0; r < W; r++) {
      const U words = wordsAt(codes + r * q->outputs + c);
      for (int k = 0; k < perWord; k++) a = a + xs[r * perWord + k] * (codeOf<bits>(words, k) * scale);
    }
    store(acc + c, a);
  }
}

template <int bits> static inline float weightAt(const Quantised *q, size_t input, size_t output) {
  const size_t word = input / Codes<bits>::perWord;
  const int up = 32 - bits * (int)(input % Codes<bits>::perWord + 1);
  const int32_t code = (int32_t)(q->codes[word * q->outputs + output] << up) >> (32 - bits);
  return (float)code * widenOne(scalesOf<bits>(q, word) + output);
}

// One block of inputs for one row, for outputs that fill no vector or inputs that fill no words.
template <int bits>
static inline void addSingly(const Quantised *q, size_t begin, size_t end, size_t from, size_t to, float *acc) {
  for (size_t i = begin; i < end; i++)
    for (size_t c = from; c < to; c++) acc[c - from] = acc[c - from] + q->x[i] * weightAt<bits>(q, i, c);
}

template <int bits> static void quantisedRow(const Quantised *q, size_t from, size_t to, float *acc) {
  enum { perWord = Codes<bits>::perWord, together = 16 / perWord };
  const size_t whole = (to - from) / lanes * lanes, count = to - from;
  for (size_t begin = 0; begin < q->inputs; begin += blockInputs) {
    const size_t end = least(q->inputs, begin + blockInputs);
    const float *x = q->x + begin;
    const size_t first = begin / perWord, words = (end - begin) / perWord;
    __builtin_memset(acc, 0, count * sizeof(float));
    size_t w = 0;
    for (; w + together <= words; w += together)
      addWords<bits, together>(q, first + w, from, x + w * perWord, acc, whole);
    for (; w < words; w++) addWords<bits, 1>(q, first + w, from, x + w * perWord, acc, whole);
    addSingly<bits>(q, begin + words * perWord, end, from, from + whole, acc);
    addSingly<bits>(q, begin, end, from + whole, to, acc + whole);
    addToOut(q->out + from, acc, count, begin == 0);
  }
}

// Widens a block of a strip of outputs into a panel as packInputMajor does.
template <int bits>
static void packQuantised(const Quantised *q, size_t begin, size_t end, size_t from, size_t to, float *panel) {
  size_t strip = 0;
  for (size_t c = from; c < to; c += microColumns, strip++) {
    float *at = panel + strip * stripFloats;
    for (size_t i = begin; i < end; i++, at += microColumns) {
      const size_t word = i / Codes<bits>::perWord;
      const int up = 32 - bits * (int)(i % Codes<bits>::perWord + 1);
      for (int v = 0; v < microVectors; v++) {
        const size_t column = c + v * lanes;
        if (column + lanes <= to) {
          const I codes = (I)(wordsAt(q->codes + word * q->outputs + column) << up) >> (32 - bits);
          store(at + v * lanes, floatsOf(codes) * widen(scalesOf<bits>(q, word) + column));
        } else {
          for (size_t l = 0; l < lanes; l++) at[v * lanes + l] = column + l < to ? weightAt<bits>(q, i, column + l) : 0.0f;
        }
      }
    }
  }
}

template <int bits> static void runQuantised(const Quantised *q, uint32_t *counter, int threads, Scratch s) {
  Product p = {};
  p.rows = q->rows;
  p.outputs = q->outputs;
  p.x = q->x;
  p.xStride = q->inputs;
  p.end = q->inputs;
  p.out = q->out;
  p.outStride = q->outputs;
  p.bias = q->bias;
  p.residual = q->residual;
  const bool one = q->rows == 1;
  const size_t widest = one ? 4096 : (size_t)microColumns * panelStrips;
  const size_t columns = least(widest, roundUp((q->outputs + threads - 1) / threads, 64));
  for (size_t from; (from = takeItem(counter) * columns) < q->outputs;) {
    const size_t to = least(from + columns, q->outputs);
    if (one) quantisedRow<bits>(q, from, to, s.acc);
    else
      for (size_t begin = 0; begin < q->inputs; begin += blockInputs) {
        const size_t end = least(q->inputs, begin + blockInputs);
        packQuantised<bits>(q, begin, end, from, to, s.panel);
        for (size_t t = 0; t < q->rows; t += microRows)
          panelRows(&p, Block{begin, end - begin}, t, least(microRows, q->rows - t), to - from, s.panel,
                    q->out + t * q->outputs + from, q->outputs, begin == 0, s.gathered);
      }
    for (size_t t = 0; t < q->rows; t++) finishColumns(&p, t, from, to, q->inputs == 0);
  }
}

static void quantisedLinear(const double *w, uint32_t *counter, int threads, Scratch s) {
  Quantised q = {};
  q.rows = (size_t)w[1];
  q.x = pointerAt<const float>(w[2]);
  q.inputs = (size_t)w[3];
  q.outputs = (size_t)w[4];
  q.codes = pointerAt<const uint32_t>(w[6]);
  q.scales = pointerAt<const Bf16>(w[7]);
  q.out = pointerAt<float>(w[8]);
  q.bias = pointerAt<const float>(w[9]);
  q.residual = pointerAt<const float>(w[10]);
  if ((int)w[5] == 8) runQuantised<8>(&q, counter, threads, s);
  else runQuantised<4>(&q, counter, threads, s);
}
