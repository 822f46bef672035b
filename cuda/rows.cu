// Ops that touch each element once, and norms.
#include "active-set.cuh"
#include "norms.cuh"

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
  enterKernel();
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
  enterKernel();
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
  enterKernel();
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
  enterKernel();
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

extern "C" __global__ void __launch_bounds__(1024) norm_rows(const NormParams p) {
  enterKernel();
  extern __shared__ __align__(16) float shared[];
  const int width = (int)p.width, blocks = (width + blockInputs - 1) / blockInputs;
  const bool rms = p.rms != 0;
  float *row = shared, *sums = shared + blocks * paddedBlock;
  const float *x = p.x + (i64)blockIdx.x * width;
  float *out = p.out + (i64)blockIdx.x * width;
  loadPaddedRows(row, 0, 1, x, width, 1, width);
  __syncthreads();
  const NormScale scale = normScale(row, sums, width, rms, (float)p.epsilon);
#pragma unroll 4
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[i] = normed(row[paddedIndex(i)], scale, rms, p.gamma, p.beta, i);
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
  enterKernel();
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

template <class E> __device__ __forceinline__ void storeKv(const StoreKvParams &p) {
  enterKernel();
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

struct GreedyParams {
  i64 width;
  const float *x; // [rows, width]
  u32 *out;
};

struct Choice {
  float value;
  u32 id;
  __device__ __forceinline__ void take(float other, u32 otherId) {
    if (other > value || (other == value && otherId < id)) {
      value = other;
      id = otherId;
    }
  }
};

// A block of threads a row: the lowest id of the largest value, all bits where some value is not finite.
extern "C" __global__ void __launch_bounds__(1024) greedy(const GreedyParams p) {
  __shared__ Choice choices[32];
  enterKernel();
  const int width = (int)p.width, tid = threadIdx.x, lane = tid % 32;
  const float *x = p.x + (i64)blockIdx.x * width;
  Choice best = {__uint_as_float(0xff800000u), 0xffffffffu};
  bool finite = true;
  constexpr int batch = 8;
  for (int first = tid; first < width; first += batch * blockDim.x) {
    float values[batch];
#pragma unroll
    for (int i = 0; i < batch; i++) {
      const int id = first + i * blockDim.x;
      values[i] = id < width ? x[id] : best.value;
    }
#pragma unroll
    for (int i = 0; i < batch; i++) {
      const int id = first + i * blockDim.x;
      if (id >= width) continue;
      finite &= (__float_as_uint(values[i]) & 0x7f800000u) != 0x7f800000u;
      best.take(values[i], id);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    best.take(__shfl_down_sync(0xffffffffu, best.value, distance), __shfl_down_sync(0xffffffffu, best.id, distance));
  if (lane == 0) choices[tid / 32] = best;
  finite = __syncthreads_and(finite);
  if (tid != 0) return;
  for (int warp = 1; warp < blockDim.x / 32; warp++) best.take(choices[warp].value, choices[warp].id);
  p.out[blockIdx.x] = finite ? best.id : 0xffffffffu;
}

struct CompactParams {
  i64 rows;
  i64 width;
  const float *x;
  u32 *active;
};

extern "C" __global__ void __launch_bounds__(1024) compact(const CompactParams p) {
  __shared__ u32 room[compactWords];
  enterKernel();
  compactColumns(p.x, (int)p.rows, (int)p.width, p.active, room);
}
