import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';

/** Lanes that share a block of 128 inputs, and adjacent columns of each: the kernels of cuda/linear-stream.cu. */
export const streamTiles = { '8x2': [8, 2], '16x2': [16, 2], '16x4': [16, 4] } as const;
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
const common = { tiles: 1, mostWarps: 16, perMultiprocessor: 1, prefetchedBytes: 10 * mebibyte } as const;

/** The first that holds a product, as an H200 gave it. `npm run test:cuda -- --only variants` compares others. */
const preferences: readonly Preference[] = [
  { columns: 28, inputs: 4096, ...common, tile: '16x2', mostWarps: 10 }, // 2560 x 2560
  { columns: 28, inputs: Infinity, ...common, tile: '16x2', mostWarps: 20 }, // 10240 x 2560
  { columns: 57, inputs: Infinity, ...common, tile: '16x2' },
  { columns: 66, inputs: Infinity, ...common, tile: '16x4' }, // 2560 x 3 * 2560
  { columns: 128, inputs: Infinity, ...common, tile: '16x4', tiles: 2 }, // 2560 x 10240
  { columns: Infinity, inputs: Infinity, ...common, tile: '16x4', tiles: 2, mostWarps: 20 }, // 2560 x 50272
];

/** What is chosen for products of the same inputs. */
export function streamChoice(
  { variant, inputs, outputs }: Pick<StreamRequest, 'variant' | 'inputs' | 'outputs'>,
  facts: LaunchFacts,
): StreamChoice {
  const columns = outputs.reduce((sum, count) => sum + count, 0) / facts.multiprocessors;
  const preference = preferences.find((one) => columns <= one.columns && inputs <= one.inputs)!;
  // Eight rows of inputs take the room of two blocks of threads.
  const perMultiprocessor = variant === 8 ? 1 : preference.perMultiprocessor;
  return { ...preference, perMultiprocessor, ...facts.tuning };
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
  readonly grid: number; // for the widest product
  readonly tiles: number;
  readonly warps: number;
  readonly depth: number;
  readonly blocksPerRound: number;
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
  const { type, variant, inputs, outputs, norm } = request;
  const choice = streamChoice(request, facts);
  const { tiles } = choice;
  const [lanes, perLane] = streamTiles[choice.tile];
  const columns = lanes * perLane * tiles;
  const groups = warpLanes / lanes;
  const chunkBytes = chunkInputs * warpLanes * perLane * storedBytes[type];
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));

  const budget = Math.floor((facts.sharedBytes + reservedBytes) / choice.perMultiprocessor) - reservedBytes;
  const perBlock = variant * (paddedBlock + columns) * 4;
  const sumsBytes = Math.max(variant * columns, norm ? blocks : 0) * 4;
  const room = budget - Math.min(leastRingBytes, Math.floor(budget / 2)) - sumsBytes;
  const most = norm ? blocks : Math.max(1, Math.min(blocks, Math.floor(room / perBlock)));
  const rounds = Math.ceil(blocks / most);
  const blocksPerRound = Math.ceil(blocks / rounds);
  const fixedBytes = blocksPerRound * perBlock + sumsBytes;

  const work = tiles * Math.ceil(blocksPerRound / groups);
  const bound = Math.min(launchBoundWarps[variant], choice.mostWarps);
  const turns = Math.ceil(work / bound);
  // Fewer warps only where not even the shallowest ring of so many fits.
  const limit = Math.max(budget, fixedBytes + 2 * chunkBytes);
  const fitting = Math.floor((limit - fixedBytes) / (2 * chunkBytes));
  const warps = Math.min(Math.ceil(work / turns), fitting);
  // A norm by itself costs less than a product that few warps stream.
  if (norm && warps < Math.min(4, work)) return null;
  const depth = depths.find((one) => fixedBytes + warps * one * chunkBytes <= limit);
  const sharedBytes = fixedBytes + warps * (depth ?? 2) * chunkBytes;
  if (depth === undefined || sharedBytes > facts.sharedBytes) return null;
  return {
    kernel: choice.tile,
    columns,
    grid: Math.ceil(Math.max(...outputs) / columns),
    tiles,
    warps,
    depth,
    blocksPerRound,
    sharedBytes,
    prefetchedBytes: rounds * Math.ceil(work / warps) * chunks <= depth ? 0 : choice.prefetchedBytes,
  };
}
