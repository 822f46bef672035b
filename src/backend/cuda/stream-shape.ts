import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';

/** Lanes that share a block of 128 inputs, and adjacent columns of each: the kernels of cuda/linear-stream.cu. */
export const streamTiles = { '16x2': [16, 2], '16x4': [16, 4] } as const;
export type StreamTile = keyof typeof streamTiles;
const depths = [16, 12, 8, 6, 4, 3, 2] as const;
/** Floats of a block of inputs in shared memory; cuda/norms.cuh. */
export const paddedBlock = blockInputs + 4;
/** Inputs of a chunk, and lanes of a warp. */
const chunkInputs = 8;
const warpLanes = 32;
const chunks = blockInputs / chunkInputs;

/** What is free to choose; a benchmark compares choices, each field that it leaves out is the preference's. */
export interface StreamChoice {
  readonly tile: StreamTile;
  /** Blocks of threads of a cluster that share the inputs of its columns, where the device has clusters; 1 for none. */
  readonly ranks: number;
  /** Tiles of columns of a block of threads. */
  readonly tiles: number;
  readonly mostWarps: number;
  /** Blocks of threads that a multiprocessor is to hold: each gets as large a part of the shared memory. */
  readonly perMultiprocessor: number;
  /** Weights that a launch asks for ahead of its inputs, where launches overlap. */
  readonly prefetchedBytes: number;
}
export type StreamTuning = Partial<StreamChoice>;

/** A choice for products of at most so many columns for each multiprocessor, and so many inputs. */
interface Preference extends StreamChoice {
  readonly columns: number;
  readonly inputs: number;
}

const mebibyte = 1024 * 1024;
const common = {
  tiles: 1,
  ranks: 1,
  mostWarps: 16,
  perMultiprocessor: 1,
  prefetchedBytes: 10 * mebibyte,
} as const;

/** Of shapes whose rings alone hold enough of what comes. */
const ahead = { mostWarps: 20, prefetchedBytes: 0 } as const;

/**
 * The first that holds a product, as an H200 gave it; those with several ranks where there are clusters. `npm run test:cuda --
 * --only variants` compares others.
 */
const preferences: readonly Preference[] = [
  { columns: 28, inputs: 4096, ...common, tile: '16x2', mostWarps: 10 }, // 2560 x 2560
  // 10240 x 2560: of a cluster, 200 blocks of threads read what 80 read else.
  { columns: 28, inputs: Infinity, ...common, ...ahead, tile: '16x4', ranks: 5, perMultiprocessor: 2 },
  { columns: 28, inputs: Infinity, ...common, tile: '16x2', mostWarps: 20 },
  { columns: 57, inputs: Infinity, ...common, tile: '16x2' },
  { columns: 66, inputs: Infinity, ...common, ...ahead, tile: '16x2', perMultiprocessor: 2 }, // 2560 x 3 * 2560
  { columns: 128, inputs: Infinity, ...common, ...ahead, tile: '16x2', tiles: 4 }, // 2560 x 10240
  { columns: Infinity, inputs: Infinity, ...common, tile: '16x4', tiles: 2, mostWarps: 20 }, // 2560 x 50272
];

/** Compute capability, times 10, from which on there are clusters. */
const clusterArchitecture = 90;

/** What is preferred for products of the same inputs; `clusters`: of all choices, else of those without. */
function streamChoice(
  { variant, inputs, outputs }: Pick<StreamRequest, 'variant' | 'inputs' | 'outputs'>,
  clusters: boolean,
  facts: LaunchFacts,
): StreamChoice {
  const columns = outputs.reduce((sum, count) => sum + count, 0) / facts.multiprocessors;
  const preference = preferences.find(
    (one) => columns <= one.columns && inputs <= one.inputs && (clusters || one.ranks === 1),
  )!;
  // Eight rows of inputs take the room of two blocks of threads.
  const perMultiprocessor = variant === 8 ? 1 : preference.perMultiprocessor;
  const choice = { ...preference, perMultiprocessor, ...facts.tuning };
  return clusters ? choice : { ...choice, ranks: 1 };
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
  readonly kernel: StreamTile;
  readonly columns: number;
  readonly grid: number; // for the widest product, all ranks of its clusters
  readonly ranks: number;
  /** Columns that each of a cluster ends. */
  readonly share: number;
  readonly tiles: number;
  readonly warps: number;
  readonly depth: number;
  readonly blocksPerRound: number;
  readonly rounds: number;
  /** Of a warp, each a tile of neighbouring blocks of inputs. */
  readonly turnsOfRound: number;
  /** Of all warps, in a round. */
  readonly turnsOfTile: number;
  readonly sharedBytes: number;
  /** 0 where the rings hold all that is read. */
  readonly prefetchedBytes: number;
}

/** Launch bounds of the kernels, in warps. */
const launchBoundWarps = { 1: 20, 2: 20, 4: 20, 8: 12 } as const;
/** Of weights in the ring, beside which more inputs are not worth their room. */
const leastRingBytes = 48 * 1024;
/** Shared memory that the system takes of each block of threads. */
const reservedBytes = 1024;

/** A ring as deep as its part of the shared memory allows. Null where the inputs of a norm leave it too little. */
export function streamShape(request: StreamRequest, facts: LaunchFacts): StreamShape | null {
  const whole = facts.architecture >= clusterArchitecture ? shapeOf(request, true, facts) : null;
  return whole ?? shapeOf(request, false, facts);
}

function shapeOf(request: StreamRequest, clusters: boolean, facts: LaunchFacts): StreamShape | null {
  const { type, variant, inputs, outputs, norm } = request;
  const choice = streamChoice(request, clusters, facts);
  const { tiles } = choice;
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const ranks = Math.min(choice.ranks, blocks);
  const [lanes, perLane] = streamTiles[choice.tile];
  const columns = lanes * perLane * tiles;
  const share = Math.ceil(columns / ranks);
  const groups = Math.floor(warpLanes / lanes);
  const chunkBytes = chunkInputs * warpLanes * perLane * storedBytes[type];

  const budget = Math.floor((facts.sharedBytes + reservedBytes) / choice.perMultiprocessor) - reservedBytes;
  const perBlock = variant * (paddedBlock + columns) * 4;
  const sumsBytes = Math.max(variant * columns, norm ? blocks : 0) * 4;
  const room = budget - Math.min(leastRingBytes, Math.floor(budget / 2)) - sumsBytes;
  // A cluster and a norm have all their blocks in one round.
  const own = Math.ceil(blocks / ranks);
  const most = norm || ranks > 1 ? own : Math.max(1, Math.min(blocks, Math.floor(room / perBlock)));
  const rounds = Math.ceil(own / most);
  const blocksPerRound = Math.ceil(own / rounds);
  const inputBytes = variant * (norm ? blocks : blocksPerRound) * paddedBlock * 4;
  const partialBytes = variant * (ranks > 1 ? blocks * share : blocksPerRound * columns) * 4;
  const fixedBytes = inputBytes + partialBytes + sumsBytes;

  const turnsOfTile = Math.ceil(blocksPerRound / groups);
  const work = tiles * turnsOfTile;
  const bound = Math.min(launchBoundWarps[variant], choice.mostWarps);
  const turns = Math.ceil(work / bound);
  // Fewer warps only where not even the shallowest ring of so many fits.
  const limit = Math.max(budget, fixedBytes + 2 * chunkBytes);
  const fitting = Math.floor((limit - fixedBytes) / (2 * chunkBytes));
  const warps = Math.min(Math.ceil(work / turns), fitting);
  // A norm by itself costs less than a product that few warps stream, and so do inputs that no cluster shares.
  if ((norm || ranks > 1) && warps < Math.min(4, work)) return null;
  const depth = depths.find((one) => fixedBytes + warps * one * chunkBytes <= limit);
  const sharedBytes = fixedBytes + warps * (depth ?? 2) * chunkBytes;
  if (depth === undefined || sharedBytes > facts.sharedBytes) return null;
  const turnsOfRound = Math.ceil(work / warps);
  return {
    kernel: choice.tile,
    columns,
    grid: Math.ceil(Math.max(...outputs) / columns) * ranks,
    ranks,
    share,
    tiles,
    warps,
    depth,
    blocksPerRound,
    rounds,
    turnsOfRound,
    turnsOfTile,
    sharedBytes,
    prefetchedBytes: rounds * turnsOfRound * chunks <= depth ? 0 : choice.prefetchedBytes,
  };
}
