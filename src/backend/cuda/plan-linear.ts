import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { blockInputs, type LinearOp } from '../ops.js';
import { at, type Launch, type LaunchFacts, largestRowsVariant, launch, rowsVariant } from './launch.js';

/** An activation that a product applies to its own result. */
export interface FusedActivation {
  readonly code: number;
  readonly threshold: number;
}

const none: FusedActivation = { code: -1, threshold: 0 };

/** A product of a submission, with the activation behind it where one can be fused. */
export interface PlannedLinear {
  readonly op: LinearOp;
  readonly opIndex: number;
  readonly activation: FusedActivation | null;
}

/** Whether two products read the same inputs and can be one launch. */
export function shareLaunch(a: LinearOp, b: LinearOp): boolean {
  return (
    a.rows <= largestRowsVariant &&
    a.rows === b.rows &&
    at(a.x) === at(b.x) &&
    a.xStride === b.xStride &&
    a.inputBegin === b.inputBegin &&
    a.inputEnd === b.inputEnd &&
    a.outStride === b.outStride &&
    a.continues === b.continues &&
    b.residual === null &&
    a.matrix.layout === 'input-major' &&
    b.matrix.layout === 'input-major' &&
    a.matrix.type === b.matrix.type &&
    a.matrix.rowStride === b.matrix.rowStride
  );
}

/** Launches of one product, or of up to three that share a launch. */
export function planLinear(products: readonly PlannedLinear[], facts: LaunchFacts): Launch[] {
  const [first] = products;
  const { op, opIndex, activation } = first!;
  if (op.rows === 0 || op.outputs === 0) return [];
  if (op.matrix.layout === 'output-major' && op.rows <= largestRowsVariant) {
    return [outputRowsLaunch(first!, facts)];
  }
  if (op.rows <= largestRowsVariant) return [rowsLaunch(products, facts)];
  const inputMajor = op.matrix.layout === 'input-major';
  const tile = inputMajor && tiles(op, 128) >= facts.multiprocessors ? 128 : 64;
  return [
    launch(
      opIndex,
      `linear_tiles_${op.matrix.type}_${inputMajor ? 'in' : 'out'}_${tile}x${tile}`,
      'LinearTilesParams',
      {
        grid: [Math.ceil(op.outputs / tile), Math.ceil(op.rows / tile)],
        threads: (tile * tile) / 64,
      },
      {
        rows: op.rows,
        x: at(op.x) + op.inputBegin * 4,
        xStride: op.xStride,
        inputs: op.inputEnd - op.inputBegin,
        matrix: at(op.matrix.span),
        rowStride: op.matrix.rowStride,
        outputs: op.outputs,
        out: at(op.out) + op.outOffset * 4,
        outStride: op.outStride,
        continues: op.continues ? 1 : 0,
        bias: at(op.bias),
        residual: op.residual === null ? 0 : at(op.residual) + op.outOffset * 4,
        activation: (activation ?? none).code,
        threshold: (activation ?? none).threshold,
      },
    ),
  ];
}

function tiles(op: LinearOp, tile: number): number {
  return Math.ceil(op.outputs / tile) * Math.ceil(op.rows / tile);
}

/** Most warps of a block of threads; the kernels' launch bounds. */
const mostWarps = { 1: 20, 2: 20, 4: 20, 8: 12 } as const;

function rowsLaunch(products: readonly PlannedLinear[], facts: LaunchFacts): Launch {
  const { op, opIndex, activation } = products[0]!;
  const variant = rowsVariant(op.rows);
  const { type, rowStride } = op.matrix;
  const inputs = op.inputEnd - op.inputBegin;
  const blocks = Math.ceil(inputs / blockInputs);
  const widest = Math.max(...products.map((product) => product.op.outputs));
  const pairs =
    products.every((product) => adjacentPairs(at(product.op.matrix.span), rowStride, type)) &&
    products.reduce((sum, product) => sum + Math.ceil(product.op.outputs / 64), 0) >= facts.multiprocessors;
  const perLane = pairs ? 2 : 1;
  const columns = 32 * perLane;
  // As many blocks a warp for every warp as can be had.
  const warps = Math.max(1, Math.ceil(blocks / Math.ceil(blocks / mostWarps[variant])));
  const fixedBytes = (warps * variant * blockInputs + variant * columns) * 4;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, variant * columns * 4);
  const [a, b = null, c = null] = products.map((product) => product.op);
  return launch(
    opIndex,
    `linear_rows_${type}_r${variant}_c${perLane}`,
    'LinearRowsParams',
    {
      grid: [Math.ceil(widest / columns), products.length],
      threads: warps * 32,
      sharedBytes: fixedBytes + blocksPerRound * variant * columns * 4,
    },
    {
      rows: op.rows,
      x: at(op.x) + op.inputBegin * 4,
      xStride: op.xStride,
      inputs,
      rowStride,
      outStride: op.outStride,
      continues: op.continues ? 1 : 0,
      activation: (activation ?? none).code,
      threshold: (activation ?? none).threshold,
      blocksPerRound,
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
    },
  );
}

/** Whether two adjacent weights can be read as one word in every row. */
export function adjacentPairs(address: number, rowStride: number, type: StoredType): boolean {
  return address % (2 * storedBytes[type]) === 0 && rowStride % 2 === 0;
}

/** Blocks whose sums meet in shared memory at once: all of them where there is room, else as many as fit. */
export function roundOf(blocks: number, roomBytes: number, bytesPerBlock: number): number {
  return Math.max(1, Math.min(blocks, Math.floor(roomBytes / bytesPerBlock)));
}

const outputWarps = 8;

function outputRowsLaunch({ op, opIndex, activation }: PlannedLinear, facts: LaunchFacts): Launch {
  const variant = rowsVariant(op.rows);
  const inputs = op.inputEnd - op.inputBegin;
  const shape = outputRowsShape(inputs, variant, facts);
  return launch(
    opIndex,
    `output_rows_${op.matrix.type}_r${variant}`,
    'OutputRowsParams',
    { ...shape.launch, grid: [Math.ceil(op.outputs / 32)] },
    {
      rows: op.rows,
      x: at(op.x) + op.inputBegin * 4,
      xStride: op.xStride,
      inputs,
      matrix: at(op.matrix.span),
      rowStride: op.matrix.rowStride,
      outputs: op.outputs,
      active: 0,
      listBegin: 0,
      listEnd: 0,
      slots: 0,
      out: at(op.out) + op.outOffset * 4,
      outStride: op.outStride,
      continues: op.continues ? 1 : 0,
      bias: at(op.bias),
      residual: op.residual === null ? 0 : at(op.residual) + op.outOffset * 4,
      activation: (activation ?? none).code,
      threshold: (activation ?? none).threshold,
      blocksPerRound: shape.blocksPerRound,
    },
  );
}

/** Threads and shared memory of `output_rows` kernels. */
export function outputRowsShape(
  inputs: number,
  variant: number,
  facts: LaunchFacts,
): { launch: { threads: number; sharedBytes: number }; blocksPerRound: number } {
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const warps = Math.min(outputWarps, blocks);
  const fixedBytes = (warps * (32 * 33 + variant * 32) + variant * 32) * 4;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, variant * 32 * 4);
  return {
    launch: { threads: warps * 32, sharedBytes: fixedBytes + blocksPerRound * variant * 32 * 4 },
    blocksPerRound,
  };
}
