// A matrix product as the linear kernels see it: dense inputs, listed inputs or listed outputs are one record. Included
// inside the anonymous namespace of a unit.
#pragma once

struct Product {
  size_t rows;    // T
  size_t outputs; // columns, or listed outputs
  const float *x;
  size_t xStride;
  size_t begin, end; // inputs, or list positions where `neurons` is set and outputs are not listed
  const uint32_t *neurons; // active list, or null for dense
  const uint32_t *slots;
  bool outputsListed;
  size_t listBegin; // of listed outputs
  const uint8_t *weights;
  size_t rowStride;   // elements
  size_t rowOrigin;   // input of matrix row 0 (input-major), or input of column 0 (output-major)
  bool outputMajor;
  float *out;
  size_t outStride;
  bool continues;
  const float *bias;
  const float *residual;
};

// One block of the summation rule: inputs, or list positions, [begin, begin + count).
struct Block {
  size_t begin, count;
};

static inline bool inputsListed(const Product *p) { return p->neurons && !p->outputsListed; }

static inline Block blockAt(const Product *p, size_t begin) {
  if (!inputsListed(p)) return Block{begin, least(p->end, (begin / blockInputs + 1) * blockInputs) - begin};
  const uint32_t block = p->neurons[begin] / blockInputs;
  size_t end = begin + 1;
  while (end < p->end && p->neurons[end] / blockInputs == block) end++;
  return Block{begin, end - begin};
}

// Row of an input-major matrix for an input, or for a list position.
template <class E> static inline const E *inputRow(const Product *p, size_t position) {
  size_t row = position - p->rowOrigin;
  if (p->neurons) row = p->slots ? p->slots[position] : p->neurons[position];
  return (const E *)p->weights + row * p->rowStride;
}

// Row of an output-major matrix for a column; its element 0 belongs to input `rowOrigin`.
template <class E> static inline const E *outputRow(const Product *p, size_t column) {
  size_t row = column;
  if (p->outputsListed) {
    const size_t position = p->listBegin + column;
    row = p->slots ? p->slots[position] : p->neurons[position];
  }
  return (const E *)p->weights + row * p->rowStride;
}

// The inputs of a block for row t, adjacent; listed inputs are gathered into `room`.
static inline const float *blockOfX(const Product *p, Block block, size_t t, float *room) {
  const float *x = p->x + t * p->xStride;
  if (!inputsListed(p)) return x + block.begin;
  for (size_t k = 0; k < block.count; k++) room[k] = x[p->neurons[block.begin + k]];
  return room;
}

// y (+ what was there) after the last block of columns [from, to): bias, then residual. `untouched`: no block ran.
static inline void finishColumns(const Product *p, size_t t, size_t from, size_t to, bool untouched) {
  float *out = p->out + t * p->outStride;
  if (untouched && !p->continues) __builtin_memset(out + from, 0, (to - from) * sizeof(float));
  if (!p->bias && !p->residual) return;
  const float *residual = p->residual ? p->residual + t * p->outStride : nullptr;
  size_t c = from;
  for (; c + lanes <= to; c += lanes) {
    F y = load(out + c);
    if (p->bias) y = y + load(p->bias + c);
    if (residual) y = y + load(residual + c);
    store(out + c, y);
  }
  for (; c < to; c++) {
    float y = out[c];
    if (p->bias) y = y + p->bias[c];
    if (residual) y = y + residual[c];
    out[c] = y;
  }
}
