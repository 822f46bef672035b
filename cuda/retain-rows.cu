// Looks up an active set among the rows that lie in places of their own, and gives places anew by least recent use. One
// block of threads: the set, the lookup and the replacement of a layer are one launch, and nothing goes to the host.
#include "active-set.cuh"
#include "row-places.cuh"

struct RetainRowsParams {
  i64 rows;
  i64 width;
  const float *x; // 0: the set is there already
  u32 *active;
  i64 places;
  u32 *placeOf;
  u32 *neuronOf; // 0: places are never given anew
  u32 *order;
  u32 *used;
  u32 *missing;
  u32 *hits;
};

// How many threads in front of this one have the flag, and in `total` how many of all.
__device__ __forceinline__ u32 rankOf(bool flag, u32 *warpSums, u32 *total) {
  const u32 bits = __ballot_sync(0xffffffffu, flag);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (lane == 0) warpSums[warp] = __popc(bits);
  __syncthreads();
  u32 sum = lane < warps ? warpSums[lane] : 0;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const u32 other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  *total = __shfl_sync(0xffffffffu, sum, 31);
  const u32 before = __shfl_sync(0xffffffffu, sum, max(warp - 1, 0));
  __syncthreads();
  return (warp == 0 ? 0 : before) + __popc(bits & ((1u << lane) - 1));
}

extern "C" __global__ void __launch_bounds__(1024) retain_rows(const RetainRowsParams p) {
  extern __shared__ u32 room[]; // for the set, then a bit for each place
  __shared__ u32 warpSums[32];
  enterKernel();
  const u32 tid = threadIdx.x, threads = blockDim.x, places = (u32)p.places;
  u32 *taken = room + compactWords;
  if (p.neuronOf)
    for (u32 word = tid; word < (places + 31) / 32; word += threads) taken[word] = 0;
  if (p.x) compactColumns(p.x, (int)p.rows, (int)p.width, p.active, room);
  __syncthreads();
  const u32 count = p.active[0];
  u32 hits = 0;
  for (u32 first = 0; first < count; first += threads) {
    const u32 at = first + tid;
    const u32 neuron = at < count ? p.active[1 + at] : 0;
    const u32 word = at < count ? p.placeOf[neuron] : 0;
    u32 total;
    const u32 rank = hits + rankOf(word != 0, warpSums, &total);
    hits += total;
    if (!p.neuronOf) continue;
    if (word != 0) {
      const u32 place = (word & ~freshPlace) - 1;
      if (word & freshPlace) p.placeOf[neuron] = place + 1;
      p.used[rank] = place;
      atomicOr(&taken[place / 32], 1u << place % 32);
    } else if (at < count && at - rank < places) {
      p.missing[at - rank] = neuron;
    }
  }
  if (tid == 0) p.hits[0] = hits;
  if (!p.neuronOf) return;
  __syncthreads();
  const u32 entering = min(count - hits, places - hits);
  // Places that the set does not use, the oldest first: the first ones go to the missing neurons, the others move up.
  u32 idle = 0;
  for (u32 first = 0; first < places; first += threads) {
    const u32 at = first + tid;
    const u32 place = at < places ? p.order[at] : 0;
    const bool unused = at < places && (taken[place / 32] >> place % 32 & 1) == 0;
    u32 total;
    const u32 rank = idle + rankOf(unused, warpSums, &total); // behind its barriers all of this turn has been read
    idle += total;
    if (!unused) continue;
    if (rank >= entering) {
      p.order[rank - entering] = place;
      continue;
    }
    const u32 neuron = p.missing[rank], before = p.neuronOf[place];
    if (before != 0) p.placeOf[before - 1] = 0;
    p.neuronOf[place] = neuron + 1;
    p.placeOf[neuron] = place + 1 | freshPlace;
    p.used[hits + rank] = place;
  }
  __syncthreads();
  const u32 newest = hits + entering;
  for (u32 at = tid; at < newest; at += threads) p.order[places - newest + at] = p.used[at];
}
