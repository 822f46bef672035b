import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { blockInputs } from '../ops.js';
import type { LaunchFacts } from './launch.js';
import { paddedBlock } from './stream-shape.js';

/** Lanes that read a row of the matrix side by side, bytes of each, inputs of a batch: kernels of cuda/linear-direct.cu. */
export const directTiles = {
  '16x4x16': [16, 4],
  '32x4x16': [32, 4],
  '8x8x16': [8, 8],
  '16x8x16': [16, 8],
} as const;
export type DirectTile = keyof typeof directTiles;

export interface DirectRequest {
  readonly type: StoredType;
  readonly variant: 1 | 2;
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
const mostThreads = 640;
const warpLanes = 32;

/** Wide rows for products that have blocks of threads enough with them. `npm run test:cuda -- --only variants` compares all. */
function preferred(columns: number, multiprocessors: number): DirectTile {
  return columns >= 48 * multiprocessors ? '32x4x16' : '16x4x16';
}

/** Null where the inputs do not fit in shared memory, or a measurement wants the rings of cuda/linear-stream.cu. */
export function directShape(
  { type, variant, inputs, outputs, norm }: DirectRequest,
  facts: LaunchFacts,
): DirectShape | null {
  if (facts.tuning?.direct === null) return null;
  const all = outputs.reduce((sum, count) => sum + count, 0);
  const kernel = facts.tuning?.direct ?? preferred(all, facts.multiprocessors);
  const [lanes, bytes] = directTiles[kernel];
  const columns = (lanes * bytes) / storedBytes[type];
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const turns = Math.ceil((blocks * lanes) / mostThreads);
  const threads = Math.ceil((Math.ceil(blocks / turns) * lanes) / warpLanes) * warpLanes;
  const floats =
    blocks * variant * (paddedBlock + columns) +
    Math.max(variant * columns, blocks) +
    (norm ? 2 * inputs : 0);
  const sharedBytes = floats * 4;
  if (sharedBytes > facts.sharedBytes) return null;
  return { kernel, grid: Math.ceil(Math.max(...outputs) / columns), threads, sharedBytes };
}
