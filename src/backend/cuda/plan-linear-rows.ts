import { storedBytes } from '../../base/stored-type.js';
import { blockInputs, type LinearOp, type NormOp, type StoreKvOp } from '../ops.js';
import { at, type Launch, type LaunchFacts, launch, rowsVariant, statusOf } from './launch.js';
import type { ParameterValues } from './parameters.js';
import { streamShape } from './stream-shape.js';

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

/** A kernel for 1 to 8 rows over input-major matrices; null where there is none with the norm in front. */
export function planLinearRows(group: LinearGroup, facts: LaunchFacts): Launch | null {
  const aligned = group.products.every(
    ({ matrix }) => at(matrix.span) % 16 === 0 && (matrix.rowStride * storedBytes[matrix.type]) % 16 === 0,
  );
  const stream = aligned ? streamLaunch(group, facts) : null;
  if (stream !== null) return stream;
  return group.norm === null ? anyLaunch(group, facts) : null;
}

/** Rows of the matrix begin at multiples of 16 bytes. */
function streamLaunch(group: LinearGroup, facts: LaunchFacts): Launch | null {
  const { products, norm } = group;
  const op = products[0]!;
  const { type } = op.matrix;
  const variant = rowsVariant(op.rows);
  const inputs = op.inputEnd - op.inputBegin;
  const outputs = products.map((product) => product.outputs);
  const shape = streamShape({ type, variant, inputs, outputs, norm: norm !== null }, facts);
  if (shape === null) return null;
  return launch(
    group.opIndex,
    `linear_stream_${type}_r${variant}_${shape.kernel}`,
    'LinearRowsParams',
    {
      grid: [shape.grid, products.length],
      threads: shape.warps * 32,
      sharedBytes: shape.sharedBytes,
      cluster: shape.ranks,
      overlapsPrevious: true,
    },
    valuesOf(group, facts, {
      ...shape,
      prefetchBytes: facts.overlaps ? prefetchShare(products, shape.grid, shape.prefetchedBytes) : 0,
    }),
  );
}

const anyColumns = 32;
const anyMostWarps = 20;

/** One column a lane, wherever weights lie: warps take blocks of 128 inputs. Shared by products of stored and of quantised weights. */
export function anyShape(
  { variant, inputs, outputs }: { variant: number; inputs: number; outputs: readonly number[] },
  facts: LaunchFacts,
): { grid: number; warps: number; blocksPerRound: number; sharedBytes: number } {
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const warps = Math.ceil(blocks / Math.ceil(blocks / anyMostWarps));
  const fixedBytes = (warps * variant * blockInputs + variant * anyColumns) * 4;
  const roundBytes = variant * anyColumns * 4;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, roundBytes);
  return {
    grid: Math.ceil(Math.max(...outputs) / anyColumns),
    warps,
    blocksPerRound,
    sharedBytes: fixedBytes + blocksPerRound * roundBytes,
  };
}

/** Rows of the matrix begin anywhere. */
function anyLaunch(group: LinearGroup, facts: LaunchFacts): Launch {
  const op = group.products[0]!;
  const variant = rowsVariant(op.rows);
  const inputs = op.inputEnd - op.inputBegin;
  const outputs = group.products.map((product) => product.outputs);
  const { grid, warps, blocksPerRound, sharedBytes } = anyShape({ variant, inputs, outputs }, facts);
  return launch(
    group.opIndex,
    `linear_rows_${op.matrix.type}_r${variant}`,
    'LinearRowsParams',
    {
      grid: [grid, group.products.length],
      threads: warps * 32,
      sharedBytes,
      overlapsPrevious: true,
    },
    valuesOf(group, facts, { ...notStreamed, blocksPerRound }),
  );
}

/** Of kernels without a ring. */
const notStreamed = {
  ranks: 1,
  share: 0,
  rounds: 0,
  turnsOfRound: 0,
  turnsOfTile: 0,
  tiles: 1,
  depth: 0,
  prefetchBytes: 0,
} as const;

type ShapeValues = Pick<ParameterValues<'LinearRowsParams'>, 'blocksPerRound' | keyof typeof notStreamed>;

function valuesOf(
  { products, norm, activation: fused, store }: LinearGroup,
  facts: LaunchFacts,
  shape: ShapeValues,
): ParameterValues<'LinearRowsParams'> {
  const op = products[0]!;
  const activation = fused ?? noActivation;
  const [a, b = null, c = null] = products;
  return {
    rows: op.rows,
    x: norm === null ? at(op.x) + op.inputBegin * 4 : at(norm.x),
    xStride: norm === null ? op.xStride : norm.width,
    inputs: op.inputEnd - op.inputBegin,
    rowStride: op.matrix.rowStride,
    outStride: op.outStride,
    continues: op.continues ? 1 : 0,
    activation: activation.code,
    threshold: activation.threshold,
    blocksPerRound: shape.blocksPerRound,
    ranks: shape.ranks,
    share: shape.share,
    rounds: shape.rounds,
    turnsOfRound: shape.turnsOfRound,
    turnsOfTile: shape.turnsOfTile,
    tiles: shape.tiles,
    depth: shape.depth,
    prefetchBytes: shape.prefetchBytes,
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
  };
}

/** What each block of threads asks for, of each matrix. */
function prefetchShare(products: readonly LinearOp[], grid: number, prefetchedBytes: number): number {
  const least = Math.min(...products.map(({ matrix }) => matrix.span.byteLength));
  return Math.floor(Math.min(prefetchedBytes / products.length, least) / grid / 16) * 16;
}

/** Blocks whose sums meet in shared memory at once: all of them where there is room, else as many as fit. */
export function roundOf(blocks: number, roomBytes: number, bytesPerBlock: number): number {
  return Math.max(1, Math.min(blocks, Math.floor(roomBytes / bytesPerBlock)));
}
