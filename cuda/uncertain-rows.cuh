#pragma once
struct CertifyParams {
  i64 rows;
  i64 inputs;
  i64 outputs;
  i64 directions;
  f64 threshold;
  const f64 *scalars; // of `round-input`, as the next two
  const short *rounded;
  const short *projected;
  const float *records; // of the copy, as the next four
  const void *codes;
  const void *high;
  const void *groupScales;
  const void *components;
  const float *bias;
  float *out;
  i64 depth;      // stages of a warp's ring
  i64 warpBytes;  // of a warp's ring and, later, row
  i64 mostTurns;  // of a block of threads: two neurons each
  i64 prefetchBytes; // of the codes of a block of threads, asked for before the inputs are there
  // The product with the rows of uncertain neurons: -1 for none, 0 F32, 1 F16, 2 BF16.
  i64 weights;
  const void *matrix; // output-major
  i64 rowStride;
  const float *x; // [rows, inputs]
  float *flags;   // [outputs]: 1 where a neuron is uncertain in some row
  i64 activation; // relu, relu2 or fatrelu, with its threshold; -1 for none
  f64 activationThreshold;
  i64 rowBlocks; // of 128 inputs that a warp's room holds at once
};

// As copyAside, for 4 or 8 bytes.
template <int bytes> __device__ __forceinline__ void copyFew(void *shared, const void *source) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(source),
               "n"(bytes)
               : "memory");
#else
  for (int i = 0; i < bytes / 4; i++) ((u32 *)shared)[i] = ((const u32 *)source)[i];
#endif
}

// acc + the four products of the bytes of a and b; b is signed in the first, not in the second, and nothing is in the last.
__device__ __forceinline__ int dotSigned(u32 a, u32 b, int acc) {
  asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(acc) : "r"(a), "r"(b));
  return acc;
}
__device__ __forceinline__ int dotUnsigned(u32 a, u32 b, int acc) {
  asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(acc) : "r"(a), "r"(b));
  return acc;
}

// Sums over the lanes of a warp, in every lane.
__device__ __forceinline__ int warpSum(int value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(0xffffffffu, value);
#else
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
#endif
}
__device__ __forceinline__ u32 warpMaximum(u32 value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, value);
#else
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) value = max(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
#endif
}
// Of values below 2^46: in two parts, of which the upper one has the sign.
__device__ __forceinline__ i64 warpSum(i64 value) {
  return ((i64)warpSum((int)(value >> 20)) << 20) + warpSum((int)(value & 0xfffff));
}

// The 32 codes of a unit as bytes, unsigned as they are stored: 0..15 and 16..31.
template <int bits> __device__ __forceinline__ void unpackCodes(uint4 code, const u32 (&over)[2], u32 (&first)[4], u32 (&second)[4]) {
  const u32 words[4] = {code.x, code.y, code.z, code.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    first[i] = words[i] & 0x0f0f0f0fu;
    second[i] = words[i] >> 4 & 0x0f0f0f0fu;
    if constexpr (bits == 5) {
      first[i] |= ((over[0] >> (4 * i) & 15u) * 0x00204081u & 0x01010101u) << 4;
      second[i] |= ((over[0] >> (16 + 4 * i) & 15u) * 0x00204081u & 0x01010101u) << 4;
    }
    if constexpr (bits == 6) {
      first[i] |= (over[i % 2] >> (i / 2 * 2) & 0x03030303u) << 4;
      second[i] |= (over[i % 2] >> (4 + i / 2 * 2) & 0x03030303u) << 4;
    }
  }
}

__device__ __forceinline__ u32 wordOf(uint4 four, int i) { return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w; }

// The row of an uncertain neuron times the inputs of R rows, by one warp: a lane takes whole blocks of 128 inputs.
template <class E, int R, class Params>
__device__ __forceinline__ void uncertainRow(const Params &p, int neuron, const float *x, int xFloats, char *room, float *partial) {
  typedef typename E::Stored Stored;
  constexpr int size = sizeof(Stored), perPiece = 16 / size, blockPieces = blockInputs / perPiece;
  constexpr int blockBytes = blockInputs * size + 16; // neighbouring lanes meet different banks
  constexpr int batch = 8;
  const int inputs = (int)p.inputs, blocks = (inputs + blockInputs - 1) / blockInputs, rowBlocks = (int)p.rowBlocks;
  const int lane = threadIdx.x % 32, rows = (int)p.rows;
  const uint4 *row = (const uint4 *)((const Stored *)p.matrix + (i64)neuron * p.rowStride);
  float y = 0.0f; // of row `lane`
  for (int begin = 0; begin < blocks; begin += rowBlocks) {
    const int here = min(rowBlocks, blocks - begin);
    const int firstPiece = begin * blockPieces, pieces = min(inputs / perPiece - firstPiece, here * blockPieces);
    for (int first = lane; first < pieces; first += batch * 32) {
      uint4 four[batch];
#pragma unroll
      for (int k = 0; k < batch; k++)
        if (first + k * 32 < pieces) four[k] = row[firstPiece + first + k * 32];
#pragma unroll
      for (int k = 0; k < batch; k++) {
        const int piece = first + k * 32;
        if (piece < pieces) *(uint4 *)(room + piece / blockPieces * blockBytes + piece % blockPieces * 16) = four[k];
      }
    }
    __syncwarp();
    if (lane < here) {
      const int count = min(blockInputs, inputs - (begin + lane) * blockInputs);
      const char *own = room + lane * blockBytes;
      const float *values = x + (begin + lane) * paddedBlock;
      float acc[R];
#pragma unroll
      for (int r = 0; r < R; r++) acc[r] = 0.0f;
#pragma unroll 4
      for (int i = 0; i < count; i += perPiece) {
        const Packed<E, perPiece> w = loadPacked<E, perPiece>((const Stored *)(own + i * size));
#pragma unroll
        for (int k = 0; k < perPiece; k += 4) {
#pragma unroll
          for (int r = 0; r < R; r++) {
            const float4 four = *reinterpret_cast<const float4 *>(values + r * xFloats + i + k);
            acc[r] = acc[r] + four.x * w.at(k);
            acc[r] = acc[r] + four.y * w.at(k + 1);
            acc[r] = acc[r] + four.z * w.at(k + 2);
            acc[r] = acc[r] + four.w * w.at(k + 3);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++) partial[r * 32 + lane] = acc[r];
    }
    __syncwarp();
    if (lane < R)
      for (int block = 0; block < here; block++) y = y + partial[lane * 32 + block];
    __syncwarp(); // before the room is written again
  }
  if (lane >= rows) return;
  if (p.bias) y = y + p.bias[neuron];
  if (p.activation >= 0) y = thresholded((int)p.activation, y, (float)p.activationThreshold);
  p.out[(i64)lane * p.outputs + neuron] = y;
}

// Whether it is proven that the pre-activation is not above the threshold; docs/certificates.md, "The bound".
__device__ __forceinline__ bool isInactive(const f64 *scalars, const float *record, bool hasDirections, f64 product, f64 inside,
                                           f64 bias, f64 threshold) {
  const f64 weights = (f64)record[1];
  const f64 s = scalars[0] * (f64)record[0] * product;
  f64 margin = scalars[6] + scalars[2] * weights + scalars[3] * (f64)record[2];
  f64 along = 0.0;
  if (hasDirections) {
    along = scalars[1] * (f64)record[3] * inside;
    margin = margin + scalars[4] * (f64)record[4] + scalars[5] * (f64)record[5];
  }
  const f64 magnitude = fabs(s) + fabs(along) + fabs(bias) + margin;
  const f64 bound = s + along + bias + margin + powerOfTwo(-40) * magnitude;
  return scalars[7] * weights < powerOfTwo(126) && bound < threshold;
}

