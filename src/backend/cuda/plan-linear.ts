import { blockInputs, type LinearOp } from '../ops.js';
import { at, type Launch, type LaunchFacts, largestRowsVariant, launch, rowsVariant } from './launch.js';
import { type FusedActivation, noActivation, roundOf } from './plan-linear-rows.js';
import { planTiles } from './plan-tiles.js';

/** One product by itself, with the activation behind it where one can be fused. */
export interface PlannedLinear {
  readonly op: LinearOp;
  readonly opIndex: number;
  readonly activation: FusedActivation | null;
}

/** Few rows of an output-major matrix, or many rows of any. */
export function planLinear(product: PlannedLinear, facts: LaunchFacts): Launch {
  const { op } = product;
  return op.rows <= largestRowsVariant ? outputRowsLaunch(product, facts) : planTiles(product, facts);
}

const outputWarps = 8;

function outputRowsLaunch({ op, opIndex, activation }: PlannedLinear, facts: LaunchFacts): Launch {
  const variant = rowsVariant(op.rows);
  const inputs = op.inputEnd - op.inputBegin;
  const shape = outputRowsShape(inputs, variant, facts);
  const fused = activation ?? noActivation;
  return launch(
    opIndex,
    `output_rows_${op.matrix.type}_r${variant}`,
    'OutputRowsParams',
    { ...shape.launch, grid: [Math.ceil(op.outputs / 32)], overlapsPrevious: true },
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
      activation: fused.code,
      threshold: fused.threshold,
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
