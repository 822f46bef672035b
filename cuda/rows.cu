// Ops that touch each element once, and norms.
#include "numbers.cuh"

struct GatherParams {
  i64 rows;
  i64 columns;
  const void *table;
  i64 tableRows;
  i64 rowStride;
  i64 columnStride;
  const int *ids;
  float *out;
  u32 *status;
};

template <class E> __device__ __forceinline__ void gatherRows(const GatherParams &p) {
  const int t = blockIdx.y;
  const i64 id = p.ids[t];
  if (id < 0 || id >= p.tableRows) {
    if (threadIdx.x == 0) fail(p.status, failureIndexOutOfRange);
    return;
  }
  const typename E::Stored *row = (const typename E::Stored *)p.table + id * p.rowStride;
  for (i64 c = blockIdx.x * (i64)blockDim.x + threadIdx.x; c < p.columns; c += (i64)gridDim.x * blockDim.x)
    p.out[t * p.columns + c] = widen<E>(row[c * p.columnStride]);
}

extern "C" __global__ void gather_f32(const GatherParams p) { gatherRows<F32>(p); }
extern "C" __global__ void gather_f16(const GatherParams p) { gatherRows<F16>(p); }
extern "C" __global__ void gather_bf16(const GatherParams p) { gatherRows<Bf16>(p); }

struct ActivateParams {
  i64 count;
  i64 activation;
  f64 threshold;
  float *x;
};

extern "C" __global__ void activate(const ActivateParams p) {
  const int code = (int)p.activation;
  const float threshold = (float)p.threshold;
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < p.count; i += (i64)gridDim.x * blockDim.x)
    p.x[i] = activated(code, p.x[i], threshold);
}

struct GatedProductParams {
  i64 count;
  float *gate;
  const float *up;
};

extern "C" __global__ void gated_product(const GatedProductParams p) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < p.count; i += (i64)gridDim.x * blockDim.x) {
    const float gate = p.gate[i];
    p.gate[i] = gate == 0.0f ? 0.0f : gate * p.up[i] + 0.0f;
  }
}

struct AddParams {
  i64 count;
  const float *a;
  const float *b;
  float *out;
};

extern "C" __global__ void add(const AddParams p) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < p.count; i += (i64)gridDim.x * blockDim.x)
    p.out[i] = p.a[i] + p.b[i];
}

struct NormParams {
  i64 rms;
  i64 width;
  f64 epsilon;
  const float *x;
  const float *gamma;
  const float *beta;
  float *out;
};

constexpr int normThreads = 256;

// Sums `term` over [0, width) by the block rule; a thread takes whole blocks, thread 0 adds their sums in order. The
// row lies in shared memory with one float of padding a block, so that threads of a warp meet different banks.
template <class Term> __device__ __forceinline__ float blockRuleSum(const float *row, float *sums, int width, Term term) {
  const int blocks = (width + blockInputs - 1) / blockInputs;
  for (int block = threadIdx.x; block < blocks; block += blockDim.x) {
    const float *from = row + block * (blockInputs + 1);
    const int count = min(blockInputs, width - block * blockInputs);
    float acc = 0.0f;
    if (count == blockInputs) {
#pragma unroll 16
      for (int i = 0; i < blockInputs; i++) acc = acc + term(from[i]);
    } else {
      for (int i = 0; i < count; i++) acc = acc + term(from[i]);
    }
    sums[block] = acc;
  }
  __syncthreads();
  float y = 0.0f;
  for (int block = 0; block < blocks; block++) y = y + sums[block];
  __syncthreads();
  return y;
}

extern "C" __global__ void __launch_bounds__(normThreads) norm_rows(const NormParams p) {
  extern __shared__ float shared[];
  const int width = (int)p.width, blocks = (width + blockInputs - 1) / blockInputs;
  float *row = shared, *sums = shared + blocks * (blockInputs + 1);
  const float *x = p.x + (i64)blockIdx.x * width;
  float *out = p.out + (i64)blockIdx.x * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) row[i + i / blockInputs] = x[i];
  __syncthreads();
  const float n = (float)width, epsilon = (float)p.epsilon;
  float mean = 0.0f, spread;
  if (p.rms) {
    spread = blockRuleSum(row, sums, width, [](float value) { return value * value; }) / n;
  } else {
    mean = blockRuleSum(row, sums, width, [](float value) { return value; }) / n;
    spread = blockRuleSum(row, sums, width, [mean](float value) {
               const float d = value - mean;
               return d * d;
             }) / n;
  }
  const float r = 1.0f / sqrtf(spread + epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = row[i + i / blockInputs];
    float y = (p.rms ? value : value - mean) * r;
    if (p.gamma) y = y * p.gamma[i];
    if (p.beta) y = y + p.beta[i];
    out[i] = y;
  }
}

struct RopeParams {
  i64 heads;
  i64 headDim;
  i64 half;
  const int *positions;
  const float *cosines;
  const float *sines;
  float *x;
};

extern "C" __global__ void rope(const RopeParams p) {
  const i64 t = blockIdx.y, position = p.positions[2 * t + 1];
  for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < p.heads * p.half; e += (i64)gridDim.x * blockDim.x) {
    const i64 i = e % p.half;
    float *low = p.x + (t * p.heads + e / p.half) * p.headDim + i, *high = low + p.half;
    const float a = *low, b = *high;
    const float c = p.cosines[position * p.half + i], s = p.sines[position * p.half + i];
    *low = a * c - b * s;
    *high = b * c + a * s;
  }
}

struct StoreKvParams {
  const int *positions;
  const float *keys;
  const float *values;
  void *keyCache;
  void *valueCache;
  i64 kvHeads;
  i64 headDim;
  i64 capacity;
  u32 *status;
};

template <class E> __device__ __forceinline__ typename E::Stored narrowKv(float value, u32 *status);
template <> __device__ __forceinline__ float narrowKv<F32>(float value, u32 *) { return value; }
template <> __device__ __forceinline__ u16 narrowKv<F16>(float value, u32 *status) {
  const float size = magnitudeOf(value);
  // Finite, and at or above 65520, where rounding to binary16 gives infinity.
  if (size >= 65520.0f && size < __uint_as_float(0x7f800000u)) fail(status, failureKvOverflow);
  return narrowF16(value);
}

template <class E> __device__ __forceinline__ void storeKv(const StoreKvParams &p) {
  typedef typename E::Stored Stored;
  const i64 t = blockIdx.y, slot = p.positions[2 * t], position = p.positions[2 * t + 1];
  const i64 elements = p.kvHeads * p.headDim;
  for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < elements; e += (i64)gridDim.x * blockDim.x) {
    const i64 head = slot * p.kvHeads + e / p.headDim, i = e % p.headDim;
    ((Stored *)p.keyCache)[(head * p.headDim + i) * p.capacity + position] = narrowKv<E>(p.keys[t * elements + e], p.status);
    ((Stored *)p.valueCache)[(head * p.capacity + position) * p.headDim + i] =
        narrowKv<E>(p.values[t * elements + e], p.status);
  }
}

extern "C" __global__ void store_kv_f32(const StoreKvParams p) { storeKv<F32>(p); }
extern "C" __global__ void store_kv_f16(const StoreKvParams p) { storeKv<F16>(p); }
