import { at, type Launch, type LaunchFacts, launch } from './launch.js';
import type { PlannedLinear } from './plan-linear.js';
import { noActivation } from './plan-linear-rows.js';
import { chooseTile, tileName, tileThreads } from './tile-variants.js';

/** A product of many rows. */
export function planTiles({ op, opIndex, activation }: PlannedLinear, facts: LaunchFacts): Launch {
  const { layout, type } = op.matrix;
  const variant = chooseTile(
    layout,
    op.rows,
    op.outputs,
    facts.multiprocessors,
    facts.variants?.tile ?? null,
  );
  const fused = activation ?? noActivation;
  return launch(
    opIndex,
    `linear_tiles_${type}_${layout === 'input-major' ? 'in' : 'out'}_${tileName(variant)}`,
    'LinearTilesParams',
    {
      grid: [Math.ceil(op.outputs / variant.columns), Math.ceil(op.rows / variant.rows)],
      threads: tileThreads(variant),
      overlapsPrevious: true,
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
      activation: fused.code,
      threshold: fused.threshold,
    },
  );
}
