// Input-major products of one or few rows: the weights of several inputs pass through registers once, accumulators
// stay in the first-level cache. Included inside the anonymous namespace of a unit.
#pragma once

// Weights are asked for along their rows, then from the start of a row that comes next; what R rows have been asked for and
// not used is this much. A whole row ahead they fight the hardware's prefetchers or, at strides that share the sets of a
// cache, each other. Two AVX-512 cores, F16 of 2048 x 8192, of the read ceiling: .90 (whole rows ahead .85, nothing .74).
enum { askedBytes = 4096 };

// Adds R inputs, in order, to `count` accumulators of one row. `next` are the rows that follow.
template <class E, int R>
static inline void addInputs(const E *const *w, const E *const *next, const float *x, float *acc, size_t count) {
  enum { line = 64 / (sizeof(E) * lanes), group = line < 1 ? 1 : line > 4 ? 4 : line, step = group * lanes };
  const size_t soon = least(askedBytes / R / sizeof(E), count), turn = (count - soon) / step * step;
  F xs[R];
  uintptr_t ask[R];
  for (int r = 0; r < R; r++) {
    xs[r] = splat(x[r]);
    ask[r] = (uintptr_t)(w[r] + soon);
  }
  size_t c = 0;
  for (; c + step <= count; c += step) {
    if (c == turn)
      for (int r = 0; r < R; r++) ask[r] = (uintptr_t)next[r] - (count - soon) * sizeof(E);
    for (int r = 0; r < R; r++) prefetchLine((const void *)(ask[r] + c * sizeof(E)));
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

// Whether rows that come next are asked for as several rows of x pass by. No hardware prefetcher finds those of an active
// set; rows that follow each other it finds better alone, but for halves in wide registers.
template <class E, bool scattered> constexpr bool asksAhead() { return scattered || (lanes == 16 && sizeof(E) == 2); }

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

// Sums of one block for columns [from, to) of one row.
template <class E>
static inline void sumBlock(const Product *p, Block block, size_t from, size_t to, float *acc, float *gathered) {
  const E *rows[blockInputs + inputsAtOnce];
  const size_t count = to - from;
  blockRows<E>(p, block, from, rows);
  const float *x = blockOfX(p, block, 0, gathered);
  __builtin_memset(acc, 0, count * sizeof(float));
  size_t k = 0;
  // Of F32, 8192 columns, 8 rows at once reach .91 of the read ceiling where 4 reach .88; halves do as well with 4.
  if (sizeof(E) == 4)
    for (; k + 8 <= block.count; k += 8) addInputs<E, 8>(rows + k, rows + k + 8, x + k, acc, count);
  for (; k + 4 <= block.count; k += 4) addInputs<E, 4>(rows + k, rows + k + 4, x + k, acc, count);
  for (; k < block.count; k++) addInputs<E, 1>(rows + k, rows + k + 1, x + k, acc, count);
}

// Columns [from, to) of one row.
template <class E>
static void oneRowColumns(const Product *p, size_t from, size_t to, float *acc, float *gathered) {
  bool first = !p->continues;
  for (size_t at = p->begin; at < p->end;) {
    const Block block = blockAt(p, at);
    sumBlock<E>(p, block, from, to, acc, gathered);
    addToOut(p->out + from, acc, to - from, first);
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
