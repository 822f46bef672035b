import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';
import { paddedBlock } from './stream-shape.js';

/** Lanes that read a row of the matrix side by side, bytes of each, inputs of a batch: kernels of cuda/linear-direct.cu. */
export const directTiles = {
  '16x4x16': [16, 4],
  '32x4x16': [32, 4],
  '40x4x16': [40, 4],
} as const;
export type DirectTile = keyof typeof directTiles;

export interface DirectRequest {
  readonly type: StoredType;
  readonly inputs: number;
  /** Of each product of the launch. */
  readonly outputs: readonly number[];
  readonly norm: boolean;
}

/** How a product is cut into blocks of threads. */
export interface DirectShape {
  readonly kernel: DirectTile;
  readonly grid: number; // for the widest product
  readonly threads: number;
  readonly sharedBytes: number;
}

/** Launch bounds of the kernels. */
const mostThreads = 800;
const warpLanes = 32;

/**
 * Products that give nearly every multiprocessor one block of threads, and none a second one: 2560 x 3 * 2560 and 2560 x 10240
 * on an H200. `npm run test:cuda -- --only variants` compares all with the rings of cuda/linear-stream.cu.
 */
function preferred(
  type: StoredType,
  columns: number,
  inputs: number,
  multiprocessors: number,
): DirectTile | null {
  if (inputs > 4096 || storedBytes[type] !== 2) return null;
  const each = columns / multiprocessors;
  if (each > 48 && each <= 64) return '32x4x16';
  return each > 64 && each <= 80 ? '40x4x16' : null;
}

/** Null where the rings of cuda/linear-stream.cu are better or wanted by a measurement, or inputs do not fit in shared memory. */
export function directShape(
  { type, inputs, outputs, norm }: DirectRequest,
  facts: LaunchFacts,
): DirectShape | null {
  const all = outputs.reduce((sum, count) => sum + count, 0);
  const wanted = facts.tuning?.direct;
  const kernel = wanted !== undefined ? wanted : preferred(type, all, inputs, facts.multiprocessors);
  if (kernel === null) return null;
  const [lanes, bytes] = directTiles[kernel];
  const columns = (lanes * bytes) / storedBytes[type];
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const turns = Math.ceil((blocks * lanes) / mostThreads);
  const threads = Math.ceil((Math.ceil(blocks / turns) * lanes) / warpLanes) * warpLanes;
  const floats = blocks * (paddedBlock + columns) + Math.max(columns, blocks) + (norm ? 2 * inputs : 0);
  const sharedBytes = floats * 4;
  if (sharedBytes > facts.sharedBytes) return null;
  return { kernel, grid: Math.ceil(Math.max(...outputs) / columns), threads, sharedBytes };
}
