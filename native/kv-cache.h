// store-kv and attention. Keys are [slots, kvHeads, headDim, capacity], values [slots, kvHeads, capacity, headDim].
// Included inside the anonymous namespace of a unit.
#pragma once

struct Cache {
  int type;
  uint8_t *keys, *values;
  size_t kvHeads, headDim, capacity;
  size_t elementBytes() const { return type == storedF32 ? 4 : 2; }
  size_t headOffset(size_t slot, size_t head) const { return (slot * kvHeads + head) * headDim * capacity; }
};

static inline Cache cacheAt(const double *w) {
  return Cache{(int)w[0], pointerAt<uint8_t>(w[1]), pointerAt<uint8_t>(w[2]), (size_t)w[4], (size_t)w[5], (size_t)w[6]};
}

static inline bool overflows(F value, F narrowest) {
  const F size = magnitudeOf(value);
  // Finite, and at or above 65520, where rounding to binary16 gives infinity.
  const I bad = (size >= splat(65520.0f)) & (size < narrowest);
  float lane[lanes];
  store(lane, (F)bad);
  bool found = false;
  for (int i = 0; i < lanes; i++) found = found || bitsOfFloat(lane[i]) != 0;
  return found;
}

// False where a finite number does not fit.
static bool narrowAll(const float *from, size_t count, uint16_t *to) {
  bool fits = true;
  const F infinity = splat(floatOfBits(0x7f800000u));
  for (size_t i = 0; i < count; i += lanes) {
    const size_t part = least(lanes, count - i);
    const F value = loadUpTo(from + i, part);
    uint16_t narrowed[lanes];
    narrow(narrowed, value);
    if (overflows(value, infinity)) fits = false;
    __builtin_memcpy(to + i, narrowed, part * sizeof(uint16_t));
  }
  return fits;
}

static bool storeKv(const double *w, uint32_t *counter, Scratch s) {
  const size_t rows = (size_t)w[1];
  const int32_t *positions = pointerAt<const int32_t>(w[2]);
  const Cache cache = cacheAt(w + 5);
  const size_t headDim = cache.headDim;
  bool fits = true;
  for (size_t item; (item = takeItem(counter)) < rows * cache.kvHeads;) {
    const size_t slot = (size_t)positions[2 * (item / cache.kvHeads)];
    const size_t position = (size_t)positions[2 * (item / cache.kvHeads) + 1];
    const size_t head = cache.headOffset(slot, item % cache.kvHeads);
    const float *key = pointerAt<const float>(w[3]) + item * headDim;
    const float *value = pointerAt<const float>(w[4]) + item * headDim;
    if (cache.type == storedF32) {
      float *keys = (float *)cache.keys + head + position;
      for (size_t d = 0; d < headDim; d++) keys[d * cache.capacity] = key[d];
      __builtin_memcpy((float *)cache.values + head + position * headDim, value, headDim * sizeof(float));
      continue;
    }
    uint16_t *keys = (uint16_t *)cache.keys + head + position;
    for (size_t from = 0; from < headDim; from += panelFloats) {
      uint16_t *narrowed = (uint16_t *)s.panel;
      const size_t part = least(panelFloats, headDim - from);
      fits = narrowAll(key + from, part, narrowed) && fits;
      for (size_t d = 0; d < part; d++) keys[(from + d) * cache.capacity] = narrowed[d];
    }
    fits = narrowAll(value, headDim, (uint16_t *)cache.values + head + position * headDim) && fits;
  }
  return fits;
}

// Softmax numerators in place; the denominator is returned.
static inline float softmaxNumerators(float *scores, size_t count, float scale) {
  F highest = splat(scores[0] * scale);
  for (size_t i = 0; i < count; i += lanes) {
    const size_t part = least(lanes, count - i);
    const F score = loadUpTo(scores + i, part) * splat(scale);
    storeUpTo(scores + i, score, part);
    // Lanes past the end repeat the first score, or their zeros could win.
    const F seen = part == lanes ? score : [&] {
      float lane[lanes];
      for (size_t l = 0; l < lanes; l++) lane[l] = scores[l < part ? i + l : 0];
      return load(lane);
    }();
    highest = select(seen > highest, seen, highest);
  }
  float lane[lanes];
  store(lane, highest);
  float top = lane[0];
  for (int l = 1; l < lanes; l++) top = lane[l] > top ? lane[l] : top;
  for (size_t i = 0; i < count; i += lanes) {
    const size_t part = least(lanes, count - i);
    storeUpTo(scores + i, exp32(loadUpTo(scores + i, part) - splat(top)), part);
  }
  return blockSums(scores, count, Plain{});
}

template <class E>
static void attentionTyped(const double *w, const Cache &cache, uint32_t *counter, int thread, Scratch s) {
  const size_t rows = (size_t)w[1], heads = (size_t)w[2], headDim = cache.headDim;
  const int32_t *positions = pointerAt<const int32_t>(w[3]);
  const float scale = (float)w[4];
  float *scores = pointerAt<float>(w[13]) + (size_t)thread * cache.capacity;
  for (size_t item; (item = takeItem(counter)) < rows * heads;) {
    // Later rows first: they are the longest, and a long last item would leave the other threads idle.
    const size_t t = rows - 1 - item / heads, head = item % heads;
    const size_t count = (size_t)positions[2 * t + 1] + 1;
    const size_t at = cache.headOffset((size_t)positions[2 * t], head / (heads / cache.kvHeads));
    Product p = {};
    p.rows = 1;
    p.x = pointerAt<const float>(w[5]) + (t * heads + head) * headDim;
    p.end = headDim;
    p.weights = cache.keys + at * sizeof(E);
    p.rowStride = cache.capacity;
    p.out = scores;
    for (size_t from = 0; from < count; from += 2048)
      oneRowColumns<E>(&p, from, least(from + 2048, count), s.acc, s.gathered);
    const float denominator = softmaxNumerators(scores, count, scale);
    float *out = pointerAt<float>(w[14]) + (t * heads + head) * headDim;
    p.x = scores;
    p.end = count;
    p.weights = cache.values + at * sizeof(E);
    p.rowStride = headDim;
    p.out = out;
    for (size_t from = 0; from < headDim; from += 2048)
      oneRowColumns<E>(&p, from, least(from + 2048, headDim), s.acc, s.gathered);
    for (size_t d = 0; d < headDim; d++) out[d] = out[d] / denominator;
  }
}

static void attention(const double *w, uint32_t *counter, int thread, Scratch s) {
  const Cache cache = cacheAt(w + 6);
  if (cache.type == storedF32) attentionTyped<float>(w, cache, counter, thread, s);
  else attentionTyped<F16>(w, cache, counter, thread, s);
}
