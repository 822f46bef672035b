import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';

/** Lanes that share a block of 128 inputs, and adjacent columns of each: the kernels of cuda/linear-stream.cu. */
const tileKinds = [
  [16, 4],
  [16, 2],
  [8, 2],
] as const;
const depths = [16, 12, 8, 6, 4, 3, 2] as const;
/** Floats of a block of inputs in shared memory; cuda/norms.cuh. */
export const paddedBlock = blockInputs + 4;
/** Inputs of a chunk, and lanes of a warp. */
const chunkInputs = 8;
const warpLanes = 32;

/** What a benchmark sets to compare shapes; each field left out is chosen by size. */
export interface StreamTuning {
  readonly lanes?: 8 | 16;
  readonly perLane?: 2 | 4;
  /** Tiles of columns of a block of threads. */
  readonly tiles?: number;
  readonly mostWarps?: number;
  /** Blocks of threads that a multiprocessor is to hold: each gets as large a part of the shared memory. */
  readonly perMultiprocessor?: number;
  /** Weights that a launch asks for ahead of its inputs, where launches overlap. */
  readonly prefetchedBytes?: number;
}

export interface StreamRequest {
  readonly type: StoredType;
  readonly variant: 1 | 2 | 4 | 8;
  readonly inputs: number;
  /** Of each product of the launch. */
  readonly outputs: readonly number[];
  readonly norm: boolean;
}

/** How a product is cut into blocks of threads and warps. */
export interface StreamShape {
  readonly kernel: string; // 16x4
  readonly columns: number;
  readonly grid: number; // for the widest product
  readonly tiles: number;
  readonly warps: number;
  readonly depth: number;
  readonly blocksPerRound: number;
  readonly sharedBytes: number;
  /** The ring holds all that a warp reads. */
  readonly whole: boolean;
}

/** Launch bounds of the kernels, in warps. */
const launchBoundWarps = { 1: 20, 2: 20, 4: 20, 8: 12 } as const;
const mostWarps = { 1: 16, 2: 16, 4: 16, 8: 12 } as const;
/** Of weights in the ring, beside which more inputs are not worth their room. */
const leastRingBytes = 48 * 1024;
/** Shared memory that the system takes of each block of threads. */
const reservedBytes = 1024;

/**
 * Widest tile that still gives nearly every multiprocessor a block of threads; then a ring as deep as its part of the shared
 * memory allows. Null where the inputs of a norm do not fit.
 */
export function streamShape(request: StreamRequest, facts: LaunchFacts): StreamShape | null {
  const { type, variant, inputs, outputs, norm } = request;
  const tuning = facts.tuning ?? {};
  const tiles = tuning.tiles ?? 1;
  const [lanes, perLane] = tileKind(outputs, tuning, facts);
  const columns = lanes * perLane * tiles;
  const groups = warpLanes / lanes;
  const chunkBytes = chunkInputs * warpLanes * perLane * storedBytes[type];
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));

  const share = tuning.perMultiprocessor ?? (variant === 8 ? 1 : 2);
  const budget = Math.floor((facts.sharedBytes + reservedBytes) / share) - reservedBytes;
  const perBlock = variant * (paddedBlock + columns) * 4;
  const sumsBytes = Math.max(variant * columns, norm ? blocks : 0) * 4;
  const room = budget - Math.min(leastRingBytes, Math.floor(budget / 2)) - sumsBytes;
  const most = norm ? blocks : Math.max(1, Math.min(blocks, Math.floor(room / perBlock)));
  const rounds = Math.ceil(blocks / most);
  const blocksPerRound = Math.ceil(blocks / rounds);
  const fixedBytes = blocksPerRound * perBlock + sumsBytes;

  const work = tiles * Math.ceil(blocksPerRound / groups);
  const bound = Math.min(launchBoundWarps[variant], tuning.mostWarps ?? mostWarps[variant]);
  const turns = Math.ceil(work / bound);
  // Fewer warps only where not even the shallowest ring of so many fits.
  const limit = Math.max(budget, fixedBytes + 2 * chunkBytes);
  const fitting = Math.floor((limit - fixedBytes) / (2 * chunkBytes));
  const warps = Math.min(Math.ceil(work / turns), fitting);
  const depth = depths.find((one) => fixedBytes + warps * one * chunkBytes <= limit);
  const sharedBytes = fixedBytes + warps * (depth ?? 2) * chunkBytes;
  if (depth === undefined || sharedBytes > facts.sharedBytes) return null;
  return {
    kernel: `${lanes}x${perLane}`,
    columns,
    grid: Math.ceil(Math.max(...outputs) / columns),
    tiles,
    warps,
    depth,
    blocksPerRound,
    sharedBytes,
    whole: rounds * Math.ceil(work / warps) * (blockInputs / chunkInputs) < depth,
  };
}

function tileKind(
  outputs: readonly number[],
  tuning: StreamTuning,
  facts: LaunchFacts,
): readonly [number, number] {
  if (tuning.lanes !== undefined && tuning.perLane !== undefined) return [tuning.lanes, tuning.perLane];
  const fills = ([lanes, perLane]: readonly [number, number]) =>
    outputs.reduce((sum, count) => sum + Math.ceil(count / (lanes * perLane)), 0) >=
    0.9 * facts.multiprocessors;
  return tileKinds.find(fills) ?? tileKinds[2];
}
