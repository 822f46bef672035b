// What every vector width shares. Included inside the anonymous namespace of a unit, after its own vector header.
#pragma once

static inline F load(const float *from) { return widen(from); }
static inline F zero() { return splat(0.0f); }

// Comparisons of F give all-ones or all-zeros lanes; written bitwise so that no compiler invents a branch.
static inline F select(I mask, F yes, F no) { return (F)(((U)mask & (U)yes) | (~(U)mask & (U)no)); }

static inline float select(bool mask, float yes, float no) { return mask ? yes : no; }

template <class E> static inline F widenPart(const E *from, size_t count) {
  E part[lanes] = {};
  __builtin_memcpy(part, from, count * sizeof(E));
  return widen(part);
}
static inline F loadPart(const float *from, size_t count) { return widenPart(from, count); }

static inline void storePart(float *to, F value, size_t count) {
  float part[lanes];
  store(part, value);
  __builtin_memcpy(to, part, count * sizeof(float));
}

static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t greatest(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t roundUp(size_t value, size_t step) { return (value + step - 1) / step * step; }
