import { type QuantisedType, quantisedFormats } from '../../base/quantised-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';
import { anyShape, roundOf } from './plan-linear-rows.js';
import { paddedBlock } from './stream-shape.js';

/** What is free to choose; a benchmark compares choices, each field that it leaves out is the preference's. */
export interface QuantisedChoice {
  /** Adjacent columns of a lane: the kernels of cuda/quantised-rows.cu. */
  readonly perLane: 1 | 2;
  readonly mostWarps: number;
  /** Blocks of threads that a multiprocessor is to hold: this launch's and the next one's. */
  readonly perMultiprocessor: 1 | 2;
}
export type QuantisedTuning = Partial<QuantisedChoice>;

const depths = [2, 3, 4] as const;
const warpLanes = 32;
/** Rows of words of a chunk of the ring. */
const chunkRows = 8;
/** Inputs of a scale of 4 bits. */
const groupInputs = 32;
/** The kernels' launch bounds, in warps. */
const launchBoundWarps = { 1: 16, 2: 16, 4: 12 } as const;
/** All 16 left the next launch no registers beside it: layers took up to a quarter longer. */
const preferredWarps = 14;
/** Words of the ring, beside which more inputs are not worth their room. */
const leastRingBytes = 32 * 1024;
/** Shared memory that the system takes of each block of threads. */
const reservedBytes = 1024;

export interface QuantisedRequest {
  readonly type: QuantisedType;
  readonly variant: 1 | 2 | 4;
  readonly inputs: number;
  /** Of each product of the launch. */
  readonly outputs: readonly number[];
  /** Words and scales of 4 columns lie together, at multiples of their size. */
  readonly aligned: boolean;
}

/** How products are cut into blocks of threads and warps. */
export interface QuantisedShape {
  /** Ends the kernel's name. */
  readonly kernel: `c${1 | 2}` | 'any';
  /** For all products, or for the widest of those that are not aligned. */
  readonly grid: number;
  readonly warps: number;
  readonly depth: number;
  readonly blocksPerRound: number;
  readonly sharedBytes: number;
}

export function quantisedShape(request: QuantisedRequest, facts: LaunchFacts): QuantisedShape {
  const shape = request.aligned ? streamed(request, facts) : null;
  return shape ?? { ...anyShape(request, facts), kernel: 'any', depth: 0 };
}

/** Lanes take single columns where pairs would be too few to fill the warps. */
function choiceOf(
  { inputs, outputs }: QuantisedRequest,
  { multiprocessors, quantised }: LaunchFacts,
): QuantisedChoice {
  const tasks = (quadsOf(outputs) / multiprocessors) * Math.ceil(inputs / blockInputs);
  return {
    perLane: tasks < 12 * tasksOfWarp(2) ? 1 : 2,
    mostWarps: preferredWarps,
    perMultiprocessor: 2,
    ...quantised,
  };
}

function quadsOf(outputs: readonly number[]): number {
  return outputs.reduce((sum, count) => sum + count, 0) / 4;
}

/** Quads of columns of a block of inputs. */
function tasksOfWarp(perLane: number): number {
  return (warpLanes * perLane) / 4;
}

/** Null where not even the shallowest ring fits. */
function streamed(request: QuantisedRequest, facts: LaunchFacts): QuantisedShape | null {
  const { type, variant, inputs, outputs } = request;
  const { perLane, mostWarps, perMultiprocessor } = choiceOf(request, facts);
  const unit = tasksOfWarp(perLane);
  const chunkInputs = chunkRows * quantisedFormats[type].inputsPerWord;
  const scaleBytes = type === 'q4' ? (chunkInputs / groupInputs) * unit * 8 : 0;
  const chunkBytes = chunkRows * unit * 16 + scaleBytes;
  const quads = quadsOf(outputs);
  const grid = Math.min(facts.multiprocessors, quads);
  const columns = Math.ceil(quads / grid) * 4;
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));

  const budget = Math.floor((facts.sharedBytes + reservedBytes) / perMultiprocessor) - reservedBytes;
  const perBlock = variant * (paddedBlock + columns) * 4;
  const sumsBytes = variant * columns * 4;
  const room = budget - Math.min(leastRingBytes, Math.floor(budget / 2)) - sumsBytes;
  const rounds = Math.ceil(blocks / roundOf(blocks, room, perBlock));
  const blocksPerRound = Math.ceil(blocks / rounds);
  const fixedBytes = blocksPerRound * perBlock + sumsBytes;

  const units = Math.ceil((blocksPerRound * columns) / 4 / unit);
  const fitting = Math.floor((budget - fixedBytes) / (depths[0] * chunkBytes));
  const warps = Math.min(mostWarps, launchBoundWarps[variant], units, fitting);
  if (warps < 1) return null;
  const steps = (rounds * Math.ceil(units / warps) * blockInputs) / chunkInputs;
  const fits = depths.filter((depth) => warps * depth * chunkBytes <= budget - fixedBytes);
  const depth = fits.find((one) => one >= steps) ?? fits.at(-1)!;
  const sharedBytes = fixedBytes + warps * depth * chunkBytes;
  return {
    kernel: `c${perLane}`,
    grid,
    warps,
    depth,
    blocksPerRound,
    sharedBytes,
  };
}
