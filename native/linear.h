// linear, active-inputs and active-outputs: which kernel, and how its work is cut into items that threads take. Items
// are parts of the outputs and rows, never of the inputs, so that no thread count changes a sum. Included inside the
// anonymous namespace of a unit.
#pragma once

static inline size_t takeItem(uint32_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

struct Scratch {
  float *panel, *acc, *gathered, *partial;
};

static inline Scratch scratchOf(float *base) {
  return Scratch{base, base + panelFloats, base + panelFloats + accumulatorFloats,
                 base + panelFloats + accumulatorFloats + gatheredFloats};
}

template <class E, bool scattered>
static void runRows(const Product *p, uint32_t *counter, int threads, Scratch s) {
  // Accumulators of all rows take at most half a first-level cache. Below that one wide item a thread: long pieces of
  // rows read faster (0.78 to 0.85 of the read ceiling where four items a thread reach 0.56 to 0.75).
  const size_t widest = 4096 / p->rows / 64 * 64;
  const size_t columns = least(widest, roundUp((p->outputs + threads - 1) / threads, 64));
  for (size_t from; (from = takeItem(counter) * columns) < p->outputs;) {
    const size_t to = least(from + columns, p->outputs);
    if (p->rows == 1) oneRowColumns<E, scattered>(p, from, to, s.acc, s.gathered);
    else fewRowsColumns<E, scattered>(p, from, to, s.acc, s.gathered);
  }
}

template <class E> static void runPanels(const Product *p, uint32_t *counter, int threads, Scratch s) {
  const bool few = p->rows <= fewRows;
  // With few rows a panel is as narrow as the register tile: its rows are then read along their length.
  const size_t panel = few ? (size_t)microColumns : (size_t)microColumns * panelStrips;
  const size_t share = roundUp(p->outputs / (threads * 3) + 1, microColumns);
  const size_t columns = few ? least(share, 512) : least(share, panel);
  const size_t columnItems = (p->outputs + columns - 1) / columns;
  size_t rowItems = columnItems >= (size_t)threads * 2 ? 1 : ((size_t)threads * 2 + columnItems - 1) / columnItems;
  rowItems = least(rowItems, (p->rows + 4 * microRows - 1) / (4 * microRows));
  const size_t rows = roundUp((p->rows + rowItems - 1) / rowItems, microRows);
  for (size_t item; (item = takeItem(counter)) < columnItems * rowItems;) {
    const size_t rowBegin = item / columnItems * rows, rowEnd = least(rowBegin + rows, p->rows);
    const size_t end = least((item % columnItems + 1) * columns, p->outputs);
    for (size_t from = item % columnItems * columns; from < end; from += panel) {
      const size_t to = least(from + panel, end);
      if (p->outputsListed) scatterColumns<E>(p, from, to, rowBegin, rowEnd, s.panel, s.gathered, s.partial);
      else panelColumns<E>(p, from, to, rowBegin, rowEnd, s.panel, s.gathered);
    }
  }
}

template <class E> static void runTyped(const Product *p, uint32_t *counter, int threads, Scratch s) {
  if (p->outputs == 0 || p->rows == 0) return;
  if (!p->outputMajor && p->rows <= fewRows)
    inputsListed(p) ? runRows<E, true>(p, counter, threads, s) : runRows<E, false>(p, counter, threads, s);
  else runPanels<E>(p, counter, threads, s);
}

static void runProduct(const Product *p, int type, uint32_t *counter, int threads, Scratch s) {
  if (type == storedF32) runTyped<float>(p, counter, threads, s);
  else if (type == storedF16) runTyped<F16>(p, counter, threads, s);
  else runTyped<Bf16>(p, counter, threads, s);
}

template <class T> static inline T *pointerAt(double word) { return (T *)(uintptr_t)word; }

static void linear(const double *w, uint32_t *counter, int threads, Scratch s) {
  Product p = {};
  p.rows = (size_t)w[1];
  p.x = pointerAt<const float>(w[2]);
  p.xStride = (size_t)w[3];
  p.begin = (size_t)w[4];
  p.end = (size_t)w[5];
  p.outputs = (size_t)w[6];
  p.weights = pointerAt<const uint8_t>(w[7]);
  p.outputMajor = w[9] != 0;
  p.rowOrigin = p.begin;
  p.rowStride = (size_t)w[10];
  const size_t offset = (size_t)w[13];
  p.out = pointerAt<float>(w[11]) + offset;
  p.outStride = (size_t)w[12];
  p.continues = w[14] != 0;
  p.bias = pointerAt<const float>(w[15]);
  p.residual = w[16] != 0 ? pointerAt<const float>(w[16]) + offset : nullptr;
  runProduct(&p, (int)w[8], counter, threads, s);
}

static inline size_t listEndOf(const uint32_t *active, double word) { return word < 0 ? active[0] : (size_t)word; }

static void activeInputs(const double *w, uint32_t *counter, int threads, Scratch s) {
  const uint32_t *active = pointerAt<const uint32_t>(w[4]);
  Product p = {};
  p.rows = (size_t)w[1];
  p.x = pointerAt<const float>(w[2]);
  p.xStride = (size_t)w[3];
  p.neurons = active + 1;
  p.begin = (size_t)w[5];
  p.end = listEndOf(active, w[6]);
  p.slots = pointerAt<const uint32_t>(w[7]);
  p.outputs = (size_t)w[8];
  p.weights = pointerAt<const uint8_t>(w[9]);
  p.rowStride = (size_t)w[12];
  p.out = pointerAt<float>(w[13]);
  p.outStride = p.outputs;
  p.continues = w[14] != 0;
  p.bias = pointerAt<const float>(w[15]);
  p.residual = pointerAt<const float>(w[16]);
  runProduct(&p, (int)w[10], counter, threads, s);
}

static void activeOutputs(const double *w, uint32_t *counter, int threads, Scratch s) {
  const uint32_t *active = pointerAt<const uint32_t>(w[4]);
  const size_t listEnd = listEndOf(active, w[6]);
  Product p = {};
  p.rows = (size_t)w[1];
  p.x = pointerAt<const float>(w[2]);
  p.xStride = (size_t)w[3];
  p.end = p.xStride;
  p.neurons = active + 1;
  p.outputsListed = true;
  p.listBegin = (size_t)w[5];
  p.outputs = listEnd > p.listBegin ? listEnd - p.listBegin : 0;
  p.slots = pointerAt<const uint32_t>(w[7]);
  p.weights = pointerAt<const uint8_t>(w[8]);
  p.outputMajor = true;
  p.rowStride = (size_t)w[11];
  p.out = pointerAt<float>(w[12]);
  p.outStride = (size_t)w[13];
  p.bias = pointerAt<const float>(w[14]);
  runProduct(&p, (int)w[9], counter, threads, s);
}
