// Products of many rows, and every output-major product: 128 inputs of a strip of outputs are widened into a panel
// once a block, then a register tile of rows and outputs runs through it. Included inside the anonymous namespace.
#pragma once

enum {
  microVectors = 2,
  microColumns = microVectors * lanes,
  // Strips of a panel lie a little more than a power of two apart, or they would share the sets of a cache.
  stripFloats = blockInputs * microColumns + 16,
  panelStrips = 8,
};

template <class E>
static inline void packInputMajor(const Product *p, Block block, size_t from, size_t to, float *panel) {
  const size_t ahead = 4;
  for (size_t k = 0; k < block.count; k++) {
    const E *row = inputRow<E>(p, block.begin + k) + from;
    const size_t next = block.begin + k + ahead;
    const E *later = next < p->end ? inputRow<E>(p, next) + from : row;
    size_t strip = 0;
    for (size_t c = 0; c < to - from; c += microColumns, strip++) {
      float *to_ = panel + strip * stripFloats + k * microColumns;
      prefetchLine(later + c);
      if (c + microColumns <= to - from) {
        for (int v = 0; v < microVectors; v++) store(to_ + v * lanes, widen(row + c + v * lanes));
      } else {
        for (int v = 0; v < microVectors; v++) {
          const size_t begin = c + v * lanes;
          store(to_ + v * lanes, begin < to - from ? widenPart(row + begin, least(lanes, to - from - begin)) : zero());
        }
      }
    }
  }
}

template <class E>
static inline void packOutputMajor(const Product *p, Block block, size_t from, size_t to, float *panel) {
  enum { line = 64 / sizeof(E) };
  const size_t first = block.begin - p->rowOrigin;
  size_t strip = 0;
  for (size_t c = from; c < to; c += microColumns, strip++) {
    for (int v = 0; v < microVectors; v++) {
      // Columns past the end repeat the last one; nobody stores their sums.
      const E *rows[lanes];
      for (int r = 0; r < lanes; r++) rows[r] = outputRow<E>(p, least(c + v * lanes + r, to - 1));
      float *to_ = panel + strip * stripFloats + v * lanes;
      size_t k = 0;
      for (; k + 4 <= block.count; k += 4) {
        // The next block of the same rows: more rows pass at once than hardware prefetchers follow.
        if (k % line == 0)
          for (int r = 0; r < lanes; r++) prefetchSoon(rows[r] + first + k + blockInputs);
        F column[4];
        loadTransposed(rows, first + k, column);
        for (int i = 0; i < 4; i++) store(to_ + (k + i) * microColumns, column[i]);
      }
      for (; k < block.count; k++)
        for (int r = 0; r < lanes; r++) to_[k * microColumns + r] = widenOne(rows[r] + first + k);
    }
  }
}

// Block sums of M rows and `microColumns` outputs, added to y.
template <int M>
static inline void microKernel(const float *panel, size_t count, const float *const *x, float *const *y, bool first) {
  F acc[M][microVectors];
  const float *at[M];
  for (int m = 0; m < M; m++) {
    at[m] = x[m];
    for (int v = 0; v < microVectors; v++) acc[m][v] = zero();
  }
  for (size_t k = 0; k < count; k++) {
    F w[microVectors];
    for (int v = 0; v < microVectors; v++) w[v] = load(panel + k * microColumns + v * lanes);
    for (int m = 0; m < M; m++) {
      const F value = splat(at[m][k]);
      for (int v = 0; v < microVectors; v++) acc[m][v] = acc[m][v] + value * w[v];
    }
  }
  for (int m = 0; m < M; m++)
    for (int v = 0; v < microVectors; v++)
      store(y[m] + v * lanes, (first ? zero() : load(y[m] + v * lanes)) + acc[m][v]);
}

template <int M>
static inline void microTile(size_t rows, const float *panel, size_t count, const float *const *x, float *const *y,
                             bool first) {
  if constexpr (M == 1) microKernel<1>(panel, count, x, y, first);
  else if (rows >= M) microKernel<M>(panel, count, x, y, first);
  else microTile<M - 1>(rows, panel, count, x, y, first);
}

// Rows [t, t + rows) against the panel of columns [from, to); y is dense `[rows, yStride]` from column `from`.
static inline void panelRows(const Product *p, Block block, size_t t, size_t rows, size_t columns, const float *panel,
                             float *y, size_t yStride, bool first, float *gathered) {
  const float *x[microRows];
  for (size_t m = 0; m < rows; m++) x[m] = blockOfX(p, block, t + m, gathered + m * blockInputs);
  for (size_t c = 0; c < columns; c += microColumns) {
    const float *strip = panel + c / microColumns * stripFloats;
    float *to[microRows];
    if (c + microColumns <= columns) {
      for (size_t m = 0; m < rows; m++) to[m] = y + m * yStride + c;
      microTile<microRows>(rows, strip, block.count, x, to, first);
      continue;
    }
    float edge[microRows][microColumns];
    for (size_t m = 0; m < rows; m++) {
      to[m] = edge[m];
      __builtin_memset(edge[m], 0, sizeof edge[m]);
      __builtin_memcpy(edge[m], y + m * yStride + c, (columns - c) * sizeof(float));
    }
    microTile<microRows>(rows, strip, block.count, x, to, first);
    for (size_t m = 0; m < rows; m++) __builtin_memcpy(y + m * yStride + c, edge[m], (columns - c) * sizeof(float));
  }
}

template <class E>
static void panelColumns(const Product *p, size_t from, size_t to, size_t rowBegin, size_t rowEnd, float *panel,
                         float *gathered) {
  bool first = !p->continues;
  for (size_t at = p->begin; at < p->end;) {
    const Block block = blockAt(p, at);
    if (p->outputMajor) packOutputMajor<E>(p, block, from, to, panel);
    else packInputMajor<E>(p, block, from, to, panel);
    for (size_t t = rowBegin; t < rowEnd; t += microRows)
      panelRows(p, block, t, least(microRows, rowEnd - t), to - from, panel, p->out + t * p->outStride + from,
                p->outStride, first, gathered);
    first = false;
    at += block.count;
  }
  for (size_t t = rowBegin; t < rowEnd; t++) finishColumns(p, t, from, to, p->begin >= p->end);
}

enum { scatterRows = 48 };

// Listed outputs: sums grow in `partial` and are scattered to their neurons' columns at the end.
template <class E>
static void scatterColumns(const Product *p, size_t from, size_t to, size_t rowBegin, size_t rowEnd, float *panel,
                           float *gathered, float *partial) {
  const size_t columns = to - from, stride = roundUp(columns, microColumns);
  for (size_t chunk = rowBegin; chunk < rowEnd; chunk += scatterRows) {
    const size_t chunkEnd = least(chunk + scatterRows, rowEnd);
    if (p->begin >= p->end) __builtin_memset(partial, 0, (chunkEnd - chunk) * stride * sizeof(float));
    for (size_t at = p->begin; at < p->end;) {
      const Block block = blockAt(p, at);
      packOutputMajor<E>(p, block, from, to, panel);
      for (size_t t = chunk; t < chunkEnd; t += microRows)
        panelRows(p, block, t, least(microRows, chunkEnd - t), columns, panel, partial + (t - chunk) * stride, stride,
                  at == p->begin, gathered);
      at += block.count;
    }
    for (size_t t = chunk; t < chunkEnd; t++)
      for (size_t c = 0; c < columns; c++) {
        const size_t neuron = p->neurons[p->listBegin + from + c];
        float y = partial[(t - chunk) * stride + c];
        if (p->bias) y = y + p->bias[neuron];
        p->out[t * p->outStride + neuron] = y;
      }
  }
}
