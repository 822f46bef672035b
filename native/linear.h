// linear, active-inputs and active-outputs: which kernel, and how its work is cut into items that threads take. Items
// are parts of the outputs and rows, or blocks of the inputs whose sums are added in the order of the blocks, so that no
// thread count changes a sum. Included inside the anonymous namespace of a unit.
#pragma once

static inline size_t takeItem(uint32_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

struct Scratch {
  float *panel, *acc, *gathered, *partial;
};

static inline Scratch scratchOf(float *base) {
  return Scratch{base, base + panelFloats, base + panelFloats + accumulatorFloats,
                 base + panelFloats + accumulatorFloats + gatheredFloats};
}

// Columns of an item of `runBlocks`: all, or as many as accumulators there are, and fewer while that leaves threads without
// work at the end.
static inline size_t columnsOfItems(size_t outputs, size_t blocks, int threads) {
  for (size_t pieces = (outputs + accumulatorFloats - 1) / accumulatorFloats;; pieces++) {
    const size_t columns = roundUp((outputs + pieces - 1) / pieces, 64);
    const size_t items = blocks * ((outputs + columns - 1) / columns);
    const size_t idle = roundUp(items, threads) - items;
    if (idle * 16 <= items || columns <= 512) return columns;
  }
}

// Returns when `turn` has come to `mine`. Its holder is another thread that computes: only where threads share processors
// does it take long enough for this one to make room.
static inline void awaitTurn(const uint32_t *turn, uint32_t mine) {
  for (int looks = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine; looks++) {
    if (looks < 4096) relax();
    else sched_yield();
  }
}

// The most block sums that a thread keeps while it waits for their turn.
enum { heldSums = 16 };

// One row and every input: items are blocks of inputs, so that a thread reads whole rows that follow each other. Sums of
// blocks are added to the output in their order, each when its turn comes; until then a thread computes further ones, or one
// that the system put aside would stop all.
template <class E> static void runBlocks(const Product *p, uint32_t *counter, int threads, Scratch s) {
  const size_t firstBlock = p->begin / blockInputs;
  const size_t blocks = (p->end + blockInputs - 1) / blockInputs - firstBlock;
  const size_t columns = columnsOfItems(p->outputs, blocks, threads);
  const size_t items = blocks * ((p->outputs + columns - 1) / columns);
  // Panel and accumulators lie side by side.
  const size_t room = least(heldSums, (panelFloats + accumulatorFloats) / columns);
  size_t held[heldSums], oldest = 0, waiting = 0;
  uint32_t *turn = counter + 1;
  for (bool more = true; more || waiting > 0;) {
    const size_t item = more ? takeItem(counter) : items;
    more = item < items;
    if (more) {
      const size_t index = item % blocks, from = item / blocks * columns, slot = (oldest + waiting++) % room;
      const Block block = blockAt(p, index == 0 ? p->begin : (firstBlock + index) * blockInputs);
      sumBlock<E>(p, block, from, least(from + columns, p->outputs), s.panel + slot * columns, s.gathered);
      held[slot] = item;
    }
    for (; waiting > 0; waiting--) {
      const size_t mine = held[oldest], index = mine % blocks, from = mine / blocks * columns;
      const size_t to = least(from + columns, p->outputs);
      if (!more || waiting == room) awaitTurn(turn, (uint32_t)mine);
      else if (__atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine) break;
      addToOut(p->out + from, s.panel + oldest * columns, to - from, index == 0 && !p->continues);
      if (index + 1 == blocks) finishColumns(p, 0, from, to, false);
      __atomic_store_n(turn, (uint32_t)mine + 1, __ATOMIC_RELEASE);
      oldest = waiting == 1 ? 0 : (oldest + 1) % room;
    }
  }
}

template <class E, bool scattered>
static void runRows(const Product *p, uint32_t *counter, int threads, Scratch s) {
  // Accumulators of all rows take at most half a first-level cache. Below that one wide item a thread: long pieces of
  // rows read faster (0.78 to 0.85 of the read ceiling where four items a thread reach 0.56 to 0.75).
  const size_t widest = 4096 / p->rows / 64 * 64;
  const size_t columns = least(widest, roundUp((p->outputs + threads - 1) / threads, 64));
  for (size_t from; (from = takeItem(counter) * columns) < p->outputs;) {
    const size_t to = least(from + columns, p->outputs);
    if (p->rows == 1) oneRowColumns<E>(p, from, to, s.acc, s.gathered);
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
  if (!p->outputMajor && p->rows == 1 && !p->neurons && p->begin < p->end) runBlocks<E>(p, counter, threads, s);
  else if (!p->outputMajor && p->rows <= fewRows)
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
