import { storedBytes } from '../../base/stored-type.js';
import { blockInputs, type LinearOp, type NormOp, type StoreKvOp } from '../ops.js';
import { at, type Launch, type LaunchFacts, launch, rowsVariant, statusOf } from './launch.js';

/** An activation that a product applies to its own result. */
export interface FusedActivation {
  readonly code: number;
  readonly threshold: number;
}

/** Up to three products of the same inputs, and what is done in the same launch. */
export interface LinearGroup {
  readonly products: readonly LinearOp[];
  readonly opIndex: number;
  /** In front of them, on their inputs. */
  readonly norm: NormOp | null;
  /** Behind a single product, on its results. */
  readonly activation: FusedActivation | null;
  /** Behind three: the second and third are keys and values. `opIndex` is that of the store. */
  readonly store: { readonly op: StoreKvOp; readonly opIndex: number } | null;
}

export const noActivation: FusedActivation = { code: -1, threshold: 0 };

/** Threads of a block at most; the kernels' launch bounds. */
const mostThreads = { 1: 640, 2: 640, 4: 640, 8: 384 } as const;
const oneColumn = [32, 1] as const;
/** Weights asked for ahead of the inputs by one launch: below half of an H200's second-level cache. */
const mostPrefetchedBytes = 20 * 1024 * 1024;

/** A kernel for 1 to 8 rows over input-major matrices; null where shared memory does not hold what is fused. */
export function planLinearRows(group: LinearGroup, facts: LaunchFacts): Launch | null {
  const { products, opIndex, norm, store } = group;
  const op = products[0]!;
  const variant = rowsVariant(op.rows);
  const { type, rowStride } = op.matrix;
  const inputs = op.inputEnd - op.inputBegin;
  const blocks = Math.ceil(inputs / blockInputs);
  const width = Math.max(...products.map(({ outputs }) => outputs));
  const fours = products.every(
    ({ matrix }) => at(matrix.span) % (4 * storedBytes[type]) === 0 && rowStride % 4 === 0,
  );
  // Wide tiles read longer runs; where they are too few for the device, narrow ones with as many threads as there may be:
  // one column a lane for few blocks (2560 x 2560 on an H200: 9.9 us against 16.2 with four), four for many.
  const wide = products.reduce((sum, { outputs }) => sum + Math.ceil(outputs / 64), 0);
  const narrow = blocks * 32 <= mostThreads[variant] ? oneColumn : ([8, 4] as const);
  const [lanes, perLane] = !fours ? oneColumn : wide >= facts.multiprocessors ? ([16, 4] as const) : narrow;
  const columns = lanes * perLane;
  const mostGroups = mostThreads[variant] / lanes;
  // As many blocks for every group of lanes as can be had.
  const groupsWanted = Math.max(1, Math.ceil(blocks / Math.ceil(blocks / mostGroups)));
  const threads = Math.ceil((groupsWanted * lanes) / 32) * 32;
  const groups = threads / lanes;
  const normBytes = norm === null ? 0 : (variant * blocks * (blockInputs + 1) + blocks) * 4;
  const fixedBytes = (groups * variant * blockInputs + variant * columns) * 4 + normBytes;
  const roundBytes = variant * columns * 4;
  if (fixedBytes + roundBytes > facts.sharedBytes) return null;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, roundBytes);
  const grid = Math.ceil(width / columns);
  const activation = group.activation ?? noActivation;
  const [a, b = null, c = null] = products;
  return launch(
    opIndex,
    `linear_rows_${type}_r${variant}_${lanes}x${perLane}`,
    'LinearRowsParams',
    {
      grid: [grid, products.length],
      threads,
      sharedBytes: fixedBytes + blocksPerRound * roundBytes,
    },
    {
      rows: op.rows,
      x: norm === null ? at(op.x) + op.inputBegin * 4 : at(norm.x),
      xStride: norm === null ? op.xStride : norm.width,
      inputs,
      rowStride,
      outStride: op.outStride,
      continues: op.continues ? 1 : 0,
      activation: activation.code,
      threshold: activation.threshold,
      blocksPerRound,
      prefetchBytes: prefetchShare(products, grid, facts),
      matrix0: at(a!.matrix.span),
      out0: at(a!.out) + a!.outOffset * 4,
      bias0: at(a!.bias),
      residual0: a!.residual === null ? 0 : at(a!.residual) + a!.outOffset * 4,
      outputs0: a!.outputs,
      matrix1: b === null ? 0 : at(b.matrix.span),
      out1: b === null ? 0 : at(b.out) + b.outOffset * 4,
      bias1: b === null ? 0 : at(b.bias),
      outputs1: b === null ? 0 : b.outputs,
      matrix2: c === null ? 0 : at(c.matrix.span),
      out2: c === null ? 0 : at(c.out) + c.outOffset * 4,
      bias2: c === null ? 0 : at(c.bias),
      outputs2: c === null ? 0 : c.outputs,
      norm: norm === null ? -1 : norm.norm === 'layer' ? 0 : 1,
      epsilon: norm === null ? 0 : Math.fround(norm.epsilon),
      gamma: norm === null ? 0 : at(norm.gamma),
      beta: norm === null ? 0 : at(norm.beta),
      normOut: norm === null ? 0 : at(norm.out),
      store: store === null ? -1 : store.op.cache.type === 'f32' ? 0 : 1,
      positions: store === null ? 0 : at(store.op.positions),
      keyCache: store === null ? 0 : at(store.op.cache.keys),
      valueCache: store === null ? 0 : at(store.op.cache.values),
      headDim: store === null ? 0 : store.op.cache.headDim,
      capacity: store === null ? 0 : store.op.cache.capacity,
      status: store === null ? 0 : statusOf(facts, store.opIndex),
    },
  );
}

/** What each block of threads asks for, of each matrix; 0 where kernels do not overlap or an address does not allow it. */
function prefetchShare(products: readonly LinearOp[], grid: number, facts: LaunchFacts): number {
  if (!facts.overlaps || products.some(({ matrix }) => at(matrix.span) % 16 !== 0)) return 0;
  const most = mostPrefetchedBytes / products.length;
  const least = Math.min(...products.map(({ matrix }) => matrix.span.byteLength));
  return Math.floor(Math.min(most, least) / grid / 16) * 16;
}

/** Blocks whose sums meet in shared memory at once: all of them where there is room, else as many as fit. */
export function roundOf(blocks: number, roomBytes: number, bytesPerBlock: number): number {
  return Math.max(1, Math.min(blocks, Math.floor(roomBytes / bytesPerBlock)));
}
