// Input-major products of one or few rows: the weights of several inputs pass through registers once, accumulators
// stay in the first-level cache. Included inside the anonymous namespace of a unit.
#pragma once

// Whether the rows that come next are asked for. No hardware prefetcher finds those of an active set; rows that follow each
// other it finds better alone, but for halves in wide registers (of the read ceiling: .81 with, .72 without; F32 .80 and .85).
template <class E, bool scattered> constexpr bool asksAhead() { return scattered || (lanes == 16 && sizeof(E) == 2); }

// Adds R inputs, in order, to `count` accumulators of one row. `ahead` are the rows that come next.
template <class E, int R, bool scattered>
static inline void addInputs(const E *const *w, const E *const *ahead, const float *x, float *acc, size_t count) {
  enum { line = 64 / (sizeof(E) * lanes), group = line < 1 ? 1 : line > 4 ? 4 : line };
  F xs[R];
  for (int r = 0; r < R; r++) xs[r] = splat(x[r]);
  size_t c = 0;
  for (; c + group * lanes <= count; c += group * lanes) {
    if (asksAhead<E, scattered>())
      for (int r = 0; r < R; r++) prefetchLine(ahead[r] + c);
    // One vector at a time: with several in flight the compiler keeps widened weights on the stack (0.6 of the speed);
    // the processor overlaps them by itself.
    for (int v = 0; v < group; v++) {
      float *to = acc + c + v * lanes;
      F a = load(to);
      for (int r = 0; r < R; r++) a = a + xs[r] * widen(w[r] + c + v * lanes);
      store(to, a);
    }
  }
  for (; c < count; c += lanes) {
    const size_t part = least(lanes, count - c);
    F a = loadPart(acc + c, part);
    for (int r = 0; r < R; r++) a = a + xs[r] * widenPart(w[r] + c, part);
    storePart(acc + c, a, part);
  }
}

// The same for T rows at once: the widened weights are kept in registers while the rows pass by.
template <class E, int R, bool scattered>
static inline void addInputsOfRows(const E *const *w, const E *const *ahead, const float *const *x, size_t at,
                                   size_t rows, float *acc, size_t accStride, size_t count) {
  enum { group = 2 };
  size_t c = 0;
  for (; c + group * lanes <= count; c += group * lanes) {
    F weight[R][group];
    for (int r = 0; r < R; r++) {
      if (asksAhead<E, scattered>()) prefetchLine(ahead[r] + c);
      for (int v = 0; v < group; v++) weight[r][v] = widen(w[r] + c + v * lanes);
    }
    for (size_t t = 0; t < rows; t++) {
      float *to = acc + t * accStride + c;
      F a[group];
      for (int v = 0; v < group; v++) a[v] = load(to + v * lanes);
      for (int r = 0; r < R; r++) {
        const F value = splat(x[t][at + r]);
        for (int v = 0; v < group; v++) a[v] = a[v] + value * weight[r][v];
      }
      for (int v = 0; v < group; v++) store(to + v * lanes, a[v]);
    }
  }
  for (; c < count; c += lanes) {
    const size_t part = least(lanes, count - c);
    for (size_t t = 0; t < rows; t++) {
      float *to = acc + t * accStride + c;
      F a = loadPart(to, part);
      for (int r = 0; r < R; r++) a = a + splat(x[t][at + r]) * widenPart(w[r] + c, part);
      storePart(to, a, part);
    }
  }
}

static inline void addToOut(float *out, const float *acc, size_t count, bool first) {
  size_t c = 0;
  for (; c + lanes <= count; c += lanes) store(out + c, (first ? zero() : load(out + c)) + load(acc + c));
  for (; c < count; c++) out[c] = (first ? 0.0f : out[c]) + acc[c];
}

// At 16 rows this way gives 134 GFLOP/s on two AVX-512 cores, the panels 100; at 64 the panels win.
enum { inputsAtOnce = 8, fewRows = 16 };

// Pointers to the rows of a block at a column, and of the `inputsAtOnce` rows that follow it.
template <class E>
static inline void blockRows(const Product *p, Block block, size_t column, const E **rows) {
  for (size_t k = 0; k < block.count + inputsAtOnce; k++) {
    const size_t position = block.begin + k;
    rows[k] = position < p->end ? inputRow<E>(p, position) + column : rows[0];
  }
}

// Columns [from, to) of one row.
template <class E, bool scattered>
static void oneRowColumns(const Product *p, size_t from, size_t to, float *acc, float *gathered) {
  bool first = !p->continues;
  const E *rows[blockInputs + inputsAtOnce];
  const size_t count = to - from;
  for (size_t at = p->begin; at < p->end;) {
    const Block block = blockAt(p, at);
    blockRows<E>(p, block, from, rows);
    const float *x = blockOfX(p, block, 0, gathered);
    __builtin_memset(acc, 0, count * sizeof(float));
    size_t k = 0;
    for (; k + 8 <= block.count; k += 8) addInputs<E, 8, scattered>(rows + k, rows + k + 8, x + k, acc, count);
    if (k + 4 <= block.count) {
      addInputs<E, 4, scattered>(rows + k, rows + k + 4, x + k, acc, count);
      k += 4;
    }
    for (; k < block.count; k++) addInputs<E, 1, scattered>(rows + k, rows + k + 1, x + k, acc, count);
    addToOut(p->out + from, acc, count, first);
    first = false;
    at += block.count;
  }
  finishColumns(p, 0, from, to, p->begin >= p->end);
}

// Columns [from, to) of at most `fewRows` rows.
template <class E, bool scattered>
static void fewRowsColumns(const Product *p, size_t from, size_t to, float *acc, float *gathered) {
  bool first = !p->continues;
  const E *rows[blockInputs + inputsAtOnce];
  const float *x[fewRows];
  const size_t count = to - from;
  for (size_t at = p->begin; at < p->end;) {
    const Block block = blockAt(p, at);
    blockRows<E>(p, block, from, rows);
    for (size_t t = 0; t < p->rows; t++) x[t] = blockOfX(p, block, t, gathered + t * blockInputs);
    __builtin_memset(acc, 0, p->rows * count * sizeof(float));
    size_t k = 0;
    for (; k + 4 <= block.count; k += 4)
      addInputsOfRows<E, 4, scattered>(rows + k, rows + k + 4, x, k, p->rows, acc, count, count);
    for (; k < block.count; k++)
      addInputsOfRows<E, 1, scattered>(rows + k, rows + k + 1, x, k, p->rows, acc, count, count);
    for (size_t t = 0; t < p->rows; t++) addToOut(p->out + t * p->outStride + from, acc + t * count, count, first);
    first = false;
    at += block.count;
  }
  for (size_t t = 0; t < p->rows; t++) finishColumns(p, t, from, to, p->begin >= p->end);
}
