import { type QuantisedType, quantisedFormats } from '../../base/quantised-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';
import { roundOf } from './plan-linear-rows.js';
import { paddedBlock } from './stream-shape.js';

/** Lanes that share a block of 128 inputs, adjacent columns of each, and the kernel's launch bound in warps. */
const tilesOf = {
  '10x2': { lanes: 10, perLane: 2, mostWarps: 14 },
  '10x4': { lanes: 10, perLane: 4, mostWarps: 14 },
  '30x2': { lanes: 30, perLane: 2, mostWarps: 20 },
} as const;
type QuantisedTile = keyof typeof tilesOf;

/** What a block of threads may compute, the widest first: wider pieces of a row stream faster. */
const choices: readonly { readonly kernel: QuantisedTile; readonly tiles: number }[] = [
  { kernel: '10x4', tiles: 2 },
  { kernel: '30x2', tiles: 1 },
  { kernel: '10x4', tiles: 1 },
  { kernel: '10x2', tiles: 1 },
];
const depths = [2, 3, 4, 6, 8, 12, 16] as const;
const warpLanes = 32;
/** Rows of words of a chunk of the ring. */
const chunkRows = 4;
/** Words of the ring, beside which more inputs are not worth their room. */
const leastRingBytes = 64 * 1024;
/** Shared memory that the system takes of each block of threads. */
const reservedBytes = 1024;
/** Codes that a launch asks for ahead of its inputs where launches overlap and its rings do not hold all. */
const prefetchedBytes = 10 * 1024 * 1024;

export interface QuantisedRequest {
  readonly type: QuantisedType;
  readonly variant: 1 | 2 | 4;
  readonly inputs: number;
  /** Of each product of the launch. */
  readonly outputs: readonly number[];
  /** Words and scales of 4 columns lie together, at multiples of their size. */
  readonly aligned: boolean;
}

/** How products are cut into blocks of threads and warps; fields as in `StreamShape`. */
export interface QuantisedShape {
  readonly kernel: QuantisedTile | '32x1';
  readonly grid: number; // for the widest product
  readonly tiles: number;
  readonly warps: number;
  readonly depth: number;
  readonly blocksPerRound: number;
  readonly sharedBytes: number;
  readonly prefetchedBytes: number;
}

export function quantisedShape(request: QuantisedRequest, facts: LaunchFacts): QuantisedShape {
  return (request.aligned ? streamed(request, facts) : null) ?? anyShape(request, facts);
}

/** Null where not even the shallowest ring fits. */
function streamed(request: QuantisedRequest, facts: LaunchFacts): QuantisedShape | null {
  const { type, variant, inputs, outputs } = request;
  const { kernel, tiles } = choiceOf(outputs, facts.multiprocessors);
  const { lanes, perLane, mostWarps } = tilesOf[kernel];
  const groups = Math.floor(warpLanes / lanes);
  const columns = lanes * perLane * tiles;
  const rowBytes = groups * lanes * perLane * 4;
  const scaleBytes = type === 'q4' ? warpLanes * perLane * 2 : 0;
  const chunkBytes = chunkRows * rowBytes + scaleBytes;
  const chunks = blockInputs / (chunkRows * quantisedFormats[type].inputsPerWord);
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const perBlock = variant * (paddedBlock + columns) * 4;
  const sumsBytes = variant * columns * 4;

  // Room for the next launch's blocks of threads beside these, unless the inputs would be cut into rounds for it.
  const half = Math.floor((facts.sharedBytes + reservedBytes) / 2) - reservedBytes;
  const budget = half >= leastRingBytes + sumsBytes + blocks * perBlock ? half : facts.sharedBytes;
  const room = budget - Math.min(leastRingBytes, Math.floor(budget / 2)) - sumsBytes;
  const rounds = Math.ceil(blocks / roundOf(blocks, room, perBlock));
  const blocksPerRound = Math.ceil(blocks / rounds);
  const fixedBytes = blocksPerRound * perBlock + sumsBytes;

  const work = tiles * Math.ceil(blocksPerRound / groups);
  const fitting = Math.floor((budget - fixedBytes) / (2 * chunkBytes));
  if (fitting < 1) return null;
  const most = Math.min(mostWarps, fitting);
  const warps = Math.ceil(work / Math.ceil(work / most));
  const steps = rounds * Math.ceil(work / warps) * chunks;
  const fits = depths.filter((depth) => fixedBytes + warps * depth * chunkBytes <= budget);
  const depth = fits.find((one) => one > steps) ?? fits.at(-1)!;
  return {
    kernel,
    grid: Math.ceil(Math.max(...outputs) / columns),
    tiles,
    warps,
    depth,
    blocksPerRound,
    sharedBytes: fixedBytes + warps * depth * chunkBytes,
    prefetchedBytes: depth > steps ? 0 : prefetchedBytes,
  };
}

/** The choice that gives the busiest multiprocessor the fewest columns. */
function choiceOf(outputs: readonly number[], multiprocessors: number): (typeof choices)[number] {
  const busiest = choices.map(({ kernel, tiles }) => {
    const columns = tilesOf[kernel].lanes * tilesOf[kernel].perLane * tiles;
    const grid = outputs.reduce((sum, count) => sum + Math.ceil(count / columns), 0);
    return Math.ceil(grid / multiprocessors) * columns;
  });
  return choices[busiest.indexOf(Math.min(...busiest))]!;
}

const anyColumns = 32;
const anyMostWarps = 20;

/** One column a lane, wherever words lie. */
function anyShape({ variant, inputs, outputs }: QuantisedRequest, facts: LaunchFacts): QuantisedShape {
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const warps = Math.ceil(blocks / Math.ceil(blocks / anyMostWarps));
  const fixedBytes = (warps * variant * blockInputs + variant * anyColumns) * 4;
  const roundBytes = variant * anyColumns * 4;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, roundBytes);
  return {
    kernel: '32x1',
    grid: Math.ceil(Math.max(...outputs) / anyColumns),
    tiles: 1,
    warps,
    depth: 0,
    blocksPerRound,
    sharedBytes: fixedBytes + blocksPerRound * roundBytes,
    prefetchedBytes: 0,
  };
}
