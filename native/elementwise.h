// gather, activate, gated-product, add, norm, rope, store-kv. Included inside the anonymous namespace of a unit.
#pragma once

enum { chunkElements = 4096 };

// Calls body(at, n) over the chunks of [0, count) that this thread takes: n is `lanes`, or less at the very end.
template <class Body> static inline void overElements(size_t count, uint32_t *counter, Body body) {
  for (size_t from; (from = takeItem(counter) * chunkElements) < count;) {
    const size_t to = least(from + chunkElements, count);
    size_t i = from;
    for (; i + lanes <= to; i += lanes) body(i, (size_t)lanes);
    if (i < to) body(i, to - i);
  }
}

static inline F loadUpTo(const float *from, size_t n) { return n == lanes ? load(from) : loadPart(from, n); }
static inline void storeUpTo(float *to, F value, size_t n) {
  if (n == lanes) store(to, value);
  else storePart(to, value, n);
}

// The zeros of a result become positive.
static inline F positiveZeros(F value) { return value + zero(); }

template <int code> static void activateAs(float *x, size_t count, float threshold, uint32_t *counter) {
  overElements(count, counter, [=](size_t i, size_t n) {
    storeUpTo(x + i, positiveZeros(activated<code>(loadUpTo(x + i, n), threshold)), n);
  });
}

static bool activate(const double *w, uint32_t *counter) {
  const size_t count = (size_t)w[1];
  const float threshold = (float)w[3];
  float *x = pointerAt<float>(w[4]);
  switch ((int)w[2]) {
  case activationRelu: activateAs<activationRelu>(x, count, threshold, counter); return true;
  case activationRelu2: activateAs<activationRelu2>(x, count, threshold, counter); return true;
  case activationFatrelu: activateAs<activationFatrelu>(x, count, threshold, counter); return true;
  case activationSilu: activateAs<activationSilu>(x, count, threshold, counter); return true;
  case activationGelu: activateAs<activationGelu>(x, count, threshold, counter); return true;
  case activationGeluTanh: activateAs<activationGeluTanh>(x, count, threshold, counter); return true;
  case activationQuickGelu: activateAs<activationQuickGelu>(x, count, threshold, counter); return true;
  case activationSigmoid: activateAs<activationSigmoid>(x, count, threshold, counter); return true;
  case activationTanh: activateAs<activationTanh>(x, count, threshold, counter); return true;
  case activationIdentity: activateAs<activationIdentity>(x, count, threshold, counter); return true;
  default: return false;
  }
}

static void gatedProduct(const double *w, uint32_t *counter) {
  float *gate = pointerAt<float>(w[2]);
  const float *up = pointerAt<const float>(w[3]);
  overElements((size_t)w[1], counter, [=](size_t i, size_t n) {
    const F g = loadUpTo(gate + i, n);
    storeUpTo(gate + i, positiveZeros(select(g == zero(), zero(), g * loadUpTo(up + i, n))), n);
  });
}

static void add(const double *w, uint32_t *counter) {
  const float *a = pointerAt<const float>(w[2]), *b = pointerAt<const float>(w[3]);
  float *out = pointerAt<float>(w[4]);
  overElements((size_t)w[1], counter,
               [=](size_t i, size_t n) { storeUpTo(out + i, loadUpTo(a + i, n) + loadUpTo(b + i, n), n); });
}

template <class E> static bool gatherTyped(const double *w, uint32_t *counter) {
  const size_t rows = (size_t)w[1], columns = (size_t)w[2];
  const E *table = pointerAt<const E>(w[3]);
  const double tableRows = w[4];
  const size_t rowStride = (size_t)w[6], columnStride = (size_t)w[7];
  const int32_t *ids = pointerAt<const int32_t>(w[8]);
  float *out = pointerAt<float>(w[9]);
  for (size_t t; (t = takeItem(counter)) < rows;) {
    if (ids[t] < 0 || (double)ids[t] >= tableRows) return false;
    const E *from = table + (size_t)ids[t] * rowStride;
    float *to = out + t * columns;
    size_t c = 0;
    if (columnStride == 1)
      for (; c + lanes <= columns; c += lanes) store(to + c, widen(from + c));
    for (; c < columns; c++) to[c] = widenOne(from + c * columnStride);
  }
  return true;
}

static bool gather(const double *w, uint32_t *counter) {
  if (w[5] == storedF32) return gatherTyped<float>(w, counter);
  return w[5] == storedF16 ? gatherTyped<F16>(w, counter) : gatherTyped<Bf16>(w, counter);
}

static void norm(const double *w, uint32_t *counter) {
  const bool layer = w[1] == 0;
  const size_t rows = (size_t)w[2], width = (size_t)w[3];
  const float epsilon = (float)w[4], n = (float)width;
  const float *gamma = pointerAt<const float>(w[6]), *beta = pointerAt<const float>(w[7]);
  for (size_t t; (t = takeItem(counter)) < rows;) {
    const float *x = pointerAt<const float>(w[5]) + t * width;
    float *out = pointerAt<float>(w[8]) + t * width;
    const float mean = layer ? blockSums(x, width, Plain{}) / n : 0.0f;
    const float spread = (layer ? blockSums(x, width, SquaredDistance{mean}) : blockSums(x, width, Squared{})) / n;
    const float r = 1.0f / __builtin_sqrtf(spread + epsilon);
    for (size_t c = 0; c < width; c += lanes) {
      const size_t part = least(lanes, width - c);
      F y = loadUpTo(x + c, part);
      if (layer) y = y - splat(mean);
      y = y * splat(r);
      if (gamma) y = y * loadUpTo(gamma + c, part);
      if (beta) y = y + loadUpTo(beta + c, part);
      storeUpTo(out + c, y, part);
    }
  }
}

static void rope(const double *w, uint32_t *counter) {
  const size_t rows = (size_t)w[1], heads = (size_t)w[2], headDim = (size_t)w[3], half = (size_t)w[4] / 2;
  const int32_t *positions = pointerAt<const int32_t>(w[5]);
  for (size_t t; (t = takeItem(counter)) < rows;) {
    const float *cosines = pointerAt<const float>(w[6]) + (size_t)positions[2 * t + 1] * half;
    const float *sines = pointerAt<const float>(w[7]) + (size_t)positions[2 * t + 1] * half;
    for (size_t head = 0; head < heads; head++) {
      float *low = pointerAt<float>(w[8]) + (t * heads + head) * headDim, *high = low + half;
      for (size_t i = 0; i < half; i += lanes) {
        const size_t part = least(lanes, half - i);
        const F a = loadUpTo(low + i, part), b = loadUpTo(high + i, part);
        const F c = loadUpTo(cosines + i, part), s = loadUpTo(sines + i, part);
        storeUpTo(low + i, a * c - b * s, part);
        storeUpTo(high + i, b * c + a * s, part);
      }
    }
  }
}
