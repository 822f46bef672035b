// Sums over one row of numbers by the block rule, several blocks at a time: a lane is a block, so that each block's
// order is kept. Included inside the anonymous namespace of a unit.
#pragma once

struct Plain {
  template <class V> V operator()(V x) const { return x; }
};
struct Squared {
  template <class V> V operator()(V x) const { return x * x; }
};
struct SquaredDistance {
  float mean;
  F operator()(F x) const {
    const F d = x - splat(mean);
    return d * d;
  }
  float operator()(float x) const {
    const float d = x - mean;
    return d * d;
  }
};

template <class Term> static inline float blockSums(const float *x, size_t count, Term term) {
  const size_t whole = count / blockInputs;
  float sum = 0.0f;
  for (size_t block = 0; block < whole; block += lanes) {
    const float *rows[lanes];
    for (size_t r = 0; r < lanes; r++) rows[r] = x + least(block + r, whole - 1) * blockInputs;
    F acc = zero();
    for (size_t k = 0; k < blockInputs; k += 4) {
      F column[4];
      loadTransposed(rows, k, column);
      for (int i = 0; i < 4; i++) acc = acc + term(column[i]);
    }
    float lane[lanes];
    store(lane, acc);
    for (size_t r = 0; r < least(lanes, whole - block); r++) sum = sum + lane[r];
  }
  if (whole * blockInputs < count) {
    float acc = 0.0f;
    for (size_t i = whole * blockInputs; i < count; i++) acc = acc + term(x[i]);
    sum = sum + acc;
  }
  return sum;
}
