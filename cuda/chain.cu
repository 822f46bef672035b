// Launches of one row, one after the other, as one kernel: as many blocks of threads as multiprocessors go through a list of
// steps, with a barrier of them all between. Weights come through rings that no step empties (weight-ring.cuh), so that they
// are on their way while sums are added, norms computed and barriers awaited. Every step adds in the order of
// docs/numerics.md: its bits are those of the launch that it stands for.
#include "linear-rows.cuh"
#include "weight-ring.cuh"
#include "chain-attention.cuh"
#include "active-set.cuh"
#include "active-direct.cuh"

enum { stepLinear, stepAttention, stepActive };

// A step in device memory: this, then the parameters of its launch.
struct StepHeader {
  i64 kind;
  i64 part;      // of products: which of all that have weights
  i64 firstBlock; // of threads, which takes the first piece of work
};
constexpr int stepWords = 48;

struct ChainParams {
  const i64 *steps; // [stepCount][stepWords]
  i64 stepCount;
  i64 partCount;
  u32 *barrier; // two words of zeros: arrivals at barriers, blocks of threads that have ended
};

struct StepRoom {
  StepHeader header;
  i64 parameters[stepWords - 3];
};

__device__ __forceinline__ u32 arrivals(const u32 *counter) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

// Threads `first` and on bring a step.
__device__ __forceinline__ void loadStep(StepRoom *room, const i64 *steps, int step) {
  if (threadIdx.x < stepWords) ((i64 *)room)[threadIdx.x] = steps[(i64)step * stepWords + threadIdx.x];
}

// What this block of threads takes of each product, from the parameters of all steps.
__device__ __forceinline__ void findParts(StreamPart *parts, const ChainParams &p, int elementBytes) {
  for (int step = threadIdx.x; step < (int)p.stepCount; step += blockDim.x) {
    const StepHeader &header = *(const StepHeader *)(p.steps + (i64)step * stepWords);
    if (header.kind != stepLinear) continue;
    const LinearRowsParams &linear = *(const LinearRowsParams *)(&header + 1);
    StreamPart part;
    int tiles = 0;
#pragma unroll
    for (int which = 0; which < 3; which++) {
      const Product product = productOf(linear, which);
      part.matrix[which] = (const char *)product.matrix;
      part.outputs[which] = product.outputs;
      if (which > 0) part.firstTiles[which - 1] = tiles;
      tiles += (product.outputs + tileColumns - 1) / tileColumns;
    }
    const int blocks = ((int)linear.inputs + blockInputs - 1) / blockInputs, all = gridDim.x;
    part.strideBytes = (u32)linear.rowStride * elementBytes;
    part.inputs = (int)linear.inputs;
    part.first = ((int)blockIdx.x + all - (int)header.firstBlock % all) % all;
    part.turnsOfTile = (blocks + turnGroups - 1) / turnGroups;
    part.turns = part.first < tiles ? (tiles - part.first + all - 1) / all * part.turnsOfTile : 0;
    parts[header.part] = part;
  }
  __syncthreads();
  // Warps take turns round and round, also from step to step: the rings then hold equally much.
  if (threadIdx.x < 32) {
    int before = 0;
    for (int first = 0; first < (int)p.partCount; first += 32) {
      const int at = first + threadIdx.x, own = at < (int)p.partCount ? parts[at].turns : 0;
      int sum = own;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (threadIdx.x >= distance) sum += other;
      }
      if (at < (int)p.partCount) parts[at].firstWarp = (before + sum - own) % chainWarps;
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  __syncthreads();
}

template <class E>
__device__ __forceinline__ void chainLinear(const LinearRowsParams &p, const StreamPart &part, WeightRing<E> &ring, float *room) {
  typedef typename E::Stored Stored;
  const int inputs = part.inputs, blocks = (inputs + blockInputs - 1) / blockInputs;
  const bool notes = p.norm >= 0 && blockIdx.x == 0; // the norm's result, for whoever asks for it
  if (part.turns == 0 && !notes) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / turnLanes, groupLane = lane % turnLanes;
  float *x = room;                          // [blocks, padded]
  float *partial = x + blocks * paddedBlock; // [tiles of this block of threads][blocks][32]; a norm's block sums

  loadPaddedRows(x, 0, 1, p.x, 0, 1, inputs);
  __syncthreads();
  if (p.norm >= 0) {
    const bool rms = p.norm == 1;
    const NormScale scale = normScale(x, partial, inputs, rms, (float)p.epsilon);
#pragma unroll 4
    for (int i = threadIdx.x; i < inputs; i += blockDim.x) {
      const float y = normed(x[paddedIndex(i)], scale, rms, p.gamma, p.beta, i);
      x[paddedIndex(i)] = y;
      if (notes) p.normOut[i] = y;
    }
    __syncthreads();
  }
#pragma unroll 1
  for (int turn = firstTurn(part, warp); turn < part.turns; turn += chainWarps) {
    const int tile = turn / part.turnsOfTile, block = turn % part.turnsOfTile * turnGroups + group;
    const float *own = x + (block < blocks ? block : 0) * paddedBlock;
    float acc[laneColumns];
#pragma unroll
    for (int c = 0; c < laneColumns; c++) acc[c] = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < turnChunks; chunk++) {
      const Stored *weights = (const Stored *)ring.next() + lane * laneColumns;
      Packed<E, laneColumns> w[chunkRows];
#pragma unroll
      for (int i = 0; i < chunkRows; i++) w[i] = loadPacked<E, laneColumns>(weights + i * 32 * laneColumns);
#pragma unroll
      for (int i = 0; i < chunkRows; i += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(own + chunk * chunkRows + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float value = j == 0 ? four.x : j == 1 ? four.y : j == 2 ? four.z : four.w;
#pragma unroll
          for (int c = 0; c < laneColumns; c++) acc[c] = acc[c] + value * w[i + j].at(c);
        }
      }
    }
    if (block < blocks) {
#pragma unroll
      for (int c = 0; c < laneColumns; c++)
        partial[(tile * blocks + block) * tileColumns + groupLane * laneColumns + c] = acc[c];
    }
  }
  __syncthreads();
  const int tiles = part.turns / part.turnsOfTile;
  for (int o = threadIdx.x; o < tiles * tileColumns; o += blockDim.x) {
    const int tile = o / tileColumns, column = o % tileColumns;
    const TilePlace place = placeOfTile(part, part.first + tile * (int)gridDim.x);
    const Product product = productOf(p, place.which);
    const int target = place.column + column;
    if (target >= product.outputs) continue;
    // Asked for before the sum, which they wait behind.
    const float bias = product.bias ? product.bias[target] : 0.0f;
    const float residual = product.residual ? product.residual[target] : 0.0f;
    float y = p.continues ? product.out[target] : 0.0f;
    const float *sums = partial + tile * blocks * tileColumns + column;
#pragma unroll 20
    for (int block = 0; block < blocks; block++) y = y + sums[block * tileColumns];
    endOutput(p, product, 0, target, target, y, bias, residual);
  }
}

template <class E, class Kv> __device__ __forceinline__ void runChain(const ChainParams &p) {
  extern __shared__ __align__(16) float shared[];
  releaseSuccessor();
  const int all = gridDim.x, own = blockIdx.x, stepCount = (int)p.stepCount;
  char *rings = (char *)shared;
  StepRoom *rooms = (StepRoom *)(rings + chainWarps * ringBytes); // of this step and the next
  StreamPart *parts = (StreamPart *)(rooms + 2);
  float *room = (float *)(parts + p.partCount);
  loadStep(rooms, p.steps, 0);
  findParts(parts, p, sizeof(typename E::Stored));
  WeightRing<E> ring;
  ring.begin(parts, (int)p.partCount, rings);
  awaitPredecessor();
#pragma unroll 1
  for (int step = 0; step < stepCount; step++) {
    const StepRoom &now = rooms[step % 2];
    const int first = (own + all - (int)now.header.firstBlock % all) % all;
    if (now.header.kind == stepLinear) {
      chainLinear<E>(*(const LinearRowsParams *)now.parameters, parts[now.header.part], ring, room);
    } else if (now.header.kind == stepAttention) {
      const AttentionParams &attention = *(const AttentionParams *)now.parameters;
      for (int head = first; head < (int)attention.heads; head += all) {
        attendHead<Kv>(attention, head, room);
        __syncthreads();
      }
    } else {
      const ActiveDirectParams &active = *(const ActiveDirectParams *)now.parameters;
      constexpr int lanes = 8, columns = 16 / (int)sizeof(typename E::Stored);
      const int pieces = ((int)active.outputs + lanes * columns - 1) / (lanes * columns) + 1;
      for (int piece = first; piece < pieces; piece += all) {
        activeDirect<E, 1, lanes, columns>(active, piece, pieces, room);
        __syncthreads();
      }
    }
    if (step + 1 == stepCount) break;
    loadStep(&rooms[(step + 1) % 2], p.steps, step + 1);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(p.barrier, 1);
      const u32 wanted = (u32)(step + 1) * all;
      while (arrivals(p.barrier) < wanted) {
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0 && atomicAdd(p.barrier + 1, 1) + 1 == (u32)all) {
    // All have left the last barrier: the words are as the next launch wants them.
    p.barrier[0] = 0;
    p.barrier[1] = 0;
  }
}

#define CHAIN(type, E, kv, Kv)                                                                                         \
  extern "C" __global__ void __launch_bounds__(chainWarps * 32, 1) chain_##type##_##kv(const ChainParams p) {          \
    runChain<E, Kv>(p);                                                                                                \
  }
#define CHAIN_OF(type, E) CHAIN(type, E, f32, F32) CHAIN(type, E, f16, F16)
CHAIN_OF(WEIGHT_NAME, WEIGHT_TYPE)
