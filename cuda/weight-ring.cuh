// Weights of all products of a chain, streamed by each warp through a ring of its own in shared memory: copies run ahead of
// the arithmetic over the borders of steps, so that memory stays busy while blocks of threads wait for one another.
#pragma once
#include "memory.cuh"
#include "norms.cuh"

// A half warp owns 32 columns (a tile) of one block of 128 inputs; a warp takes two neighbouring blocks, a turn, in chunks
// of 8 inputs.
constexpr int tileColumns = 32, turnLanes = 16, laneColumns = 2, turnGroups = 2, chunkRows = 8;
constexpr int turnChunks = blockInputs / chunkRows;
constexpr int chainWarps = 20, ringBytes = 8192; // of a warp

// Products of one step as this block of threads takes part in them.
struct __align__(16) StreamPart {
  const char *matrix[3];
  int outputs[3];
  int firstTiles[2]; // of the second and third product among all tiles of the step
  u32 strideBytes;
  int inputs;
  int first;       // tile of this block of threads; the others follow in steps of the number of blocks
  int turnsOfTile;
  int turns;       // of all tiles of this block of threads
  int firstWarp;   // that takes turn 0
};

// Where a tile lies.
struct TilePlace {
  int which;
  int column;
};

__device__ __forceinline__ TilePlace placeOfTile(const StreamPart &part, int tile) {
  const int which = tile >= part.firstTiles[1] ? 2 : tile >= part.firstTiles[0] ? 1 : 0;
  return TilePlace{which, (tile - (which == 0 ? 0 : part.firstTiles[which - 1])) * tileColumns};
}

// First turn of a warp in a step; the others follow in steps of the number of warps.
__device__ __forceinline__ int firstTurn(const StreamPart &part, int warp) {
  const int turn = warp - part.firstWarp;
  return turn < 0 ? turn + chainWarps : turn;
}

template <class E> struct WeightRing {
  typedef typename E::Stored Stored;
  static constexpr int size = sizeof(Stored);
  static constexpr int rowBytes = 32 * laneColumns * size; // of one input of both groups, side by side
  static constexpr int chunkBytes = chunkRows * rowBytes;
  static constexpr int depth = ringBytes / chunkBytes;
  static constexpr int copies = chunkBytes / 512; // of 16 bytes by each lane
  static constexpr int pieces = rowBytes / 16;    // lanes that copy one input's weights
  static constexpr int rowsPerCopy = 32 / pieces;

  const StreamPart *parts;
  int count, warp;
  char *ring;
  // What is asked for next.
  int part, turn, chunk;
  const char *source;
  int sourceBytes, rowsLeft;
  int fill, drain; // bytes from the beginning of the ring

  __device__ __forceinline__ void begin(const StreamPart *allParts, int partCount, char *rings) {
    parts = allParts;
    count = partCount;
    warp = threadIdx.x / 32;
    ring = rings + warp * ringBytes;
    part = 0;
    turn = count > 0 ? firstTurn(parts[0], warp) : 0;
    chunk = 0;
    fill = drain = 0;
    source = nullptr;
    sourceBytes = rowsLeft = 0;
#pragma unroll 1
    for (int step = 0; step < depth - 1; step++) issue();
  }

  // Asks for the next chunk of this warp, of whatever step it is in, and ends a group of copies.
  __device__ __forceinline__ void issue() {
    if (chunk == 0) findTurn();
    if (part < count) {
      const int lane = threadIdx.x % 32;
      const u32 stride = parts[part].strideBytes;
      char *target = ring + fill + lane * 16;
#pragma unroll
      for (int k = 0; k < copies; k++) {
        const int byteLength = k * rowsPerCopy < rowsLeft ? sourceBytes : 0;
        copyAside(target + k * 512, byteLength > 0 ? source + (u64)(k * rowsPerCopy) * stride : parts[part].matrix[0],
                  byteLength);
      }
      source += (u64)chunkRows * stride;
      rowsLeft -= chunkRows;
      fill = fill + chunkBytes == ringBytes ? 0 : fill + chunkBytes;
      if (++chunk == turnChunks) {
        chunk = 0;
        turn += chainWarps;
      }
    }
    endCopyGroup();
  }

  // The oldest chunk, once it has landed; asks for another one in the place of the chunk before.
  __device__ __forceinline__ const char *next() {
    awaitCopyGroups<depth - 2>();
    __syncwarp(); // other lanes' copies have landed, and all lanes have read the chunk before
    issue();
    const char *chunkAt = ring + drain;
    drain = drain + chunkBytes == ringBytes ? 0 : drain + chunkBytes;
    return chunkAt;
  }

private:
  __device__ __forceinline__ void findTurn() {
    while (part < count && turn >= parts[part].turns) {
      part++;
      if (part < count) turn = firstTurn(parts[part], warp);
    }
    if (part == count) return;
    const StreamPart &own = parts[part];
    const int lane = threadIdx.x % 32;
    const int pieceBytes = lane % pieces * 16, copyRow = lane / pieces;
    const int group = pieceBytes / (tileColumns * size), offset = pieceBytes % (tileColumns * size);
    const TilePlace place = placeOfTile(own, own.first + turn / own.turnsOfTile * (int)gridDim.x);
    const int row = (turn % own.turnsOfTile * turnGroups + group) * blockInputs + copyRow;
    const int columnBytes = place.column * size + offset;
    sourceBytes = min(16, max(0, own.outputs[place.which] * size - columnBytes));
    source = own.matrix[place.which] + (u64)row * own.strideBytes + columnBytes;
    rowsLeft = own.inputs - row;
  }
};
