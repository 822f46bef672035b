import { type QuantisedType, quantisedFormats } from '../../base/quantised-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';
import { anyShape, roundOf } from './plan-linear-rows.js';
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
/** Inputs of a chunk of the ring. */
const chunkInputs = 32;
const chunks = blockInputs / chunkInputs;
/** Words of the ring, beside which more inputs are not worth their room. */
const leastRingBytes = 64 * 1024;
/** Deeper rings took longer. */
const mostRingBytes = 128 * 1024;

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
}

export function quantisedShape(request: QuantisedRequest, facts: LaunchFacts): QuantisedShape {
  const shape = request.aligned ? streamed(request, facts) : null;
  return shape ?? { ...anyShape(request, facts), kernel: '32x1', tiles: 1, depth: 0 };
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
  const chunkBytes = (chunkInputs / quantisedFormats[type].inputsPerWord) * rowBytes + scaleBytes;
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const perBlock = variant * (paddedBlock + columns) * 4;
  const sumsBytes = variant * columns * 4;

  const budget = facts.sharedBytes;
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
  const ring = Math.max(2 * warps * chunkBytes, Math.min(budget - fixedBytes, mostRingBytes));
  const fits = depths.filter((depth) => warps * depth * chunkBytes <= ring);
  const depth = fits.find((one) => one > steps) ?? fits.at(-1)!;
  return {
    kernel,
    grid: Math.ceil(Math.max(...outputs) / columns),
    tiles,
    warps,
    depth,
    blocksPerRound,
    // More than half of it: two blocks of threads of a launch on one multiprocessor would take twice as long as the others.
    sharedBytes: Math.max(fixedBytes + warps * depth * chunkBytes, Math.ceil(budget / 2)),
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

/** What a benchmark compares; choices that it leaves out are the preference's. */
export type QuantisedTuning = { readonly splits?: 1 | 2 | 4 };
