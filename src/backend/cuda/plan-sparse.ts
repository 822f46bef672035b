import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { type ActiveInputsOp, type ActiveOutputsOp, blockInputs, type CompactOp } from '../ops.js';
import { at, type Launch, type LaunchFacts, launch, rowGroups, rowsVariant } from './launch.js';
import { outputRowsShape } from './plan-linear.js';
import { roundOf } from './plan-linear-rows.js';

export function planCompact(op: CompactOp, opIndex: number): Launch[] {
  return [
    launch(
      opIndex,
      'compact',
      'CompactParams',
      { grid: [1], threads: 1024, overlapsPrevious: true },
      { rows: op.rows, width: op.width, x: at(op.x), active: at(op.active) },
    ),
  ];
}

/** Whether `count` adjacent weights can be read as one word in every row. */
function adjacent(address: number, rowStride: number, type: StoredType, count: number): boolean {
  return address % (count * storedBytes[type]) === 0 && rowStride % count === 0;
}

const directThreads = 640;
/** Shared words of the block of threads that writes the set; cuda/active-set.cuh. */
const compactWords = 1024 + 32;

/** The active set and the product over it in one launch. `flagged`: a set in front that holds flags; see `planCertifiedRows`. */
export function planActiveDirect(
  compact: CompactOp,
  op: ActiveInputsOp,
  opIndex: number,
  facts: LaunchFacts,
  flagged: CompactOp | null = null,
): Launch {
  const variant = rowsVariant(op.rows);
  const { type, rowStride } = op.matrix;
  const perLane = 16 / storedBytes[type];
  const aligned = adjacent(at(op.matrix.span), rowStride, type, perLane);
  const lanes = aligned ? 8 : 32;
  const columns = aligned ? lanes * perLane : lanes;
  const blocks = Math.ceil(compact.width / blockInputs);
  // All blocks in one turn where shared memory holds the inputs of so many groups and the sums of one block at least.
  const groupBytes = variant * blockInputs * 4;
  const least = (blocks + 2 * variant * columns) * 4;
  const mostGroups = Math.min(directThreads / lanes, Math.floor((facts.sharedBytes - least) / groupBytes));
  const turns = Math.ceil(blocks / mostGroups);
  const wanted = Math.ceil((Math.ceil(blocks / turns) * lanes) / 32) * 32;
  const threads = Math.max(32, Math.min(wanted, Math.floor((mostGroups * lanes) / 32) * 32));
  const fixedBytes = (threads / lanes) * groupBytes + (blocks + variant * columns) * 4;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, variant * columns * 4);
  return launch(
    opIndex,
    `active_direct_${type}_r${variant}_${aligned ? '16B' : '1'}`,
    'ActiveDirectParams',
    {
      grid: [Math.ceil(op.outputs / columns) + (flagged === null ? 1 : 2)],
      threads,
      sharedBytes: Math.max(compactWords * 4, fixedBytes + blocksPerRound * variant * columns * 4),
      overlapsPrevious: true,
    },
    {
      rows: op.rows,
      x: at(op.x),
      width: compact.width,
      active: at(op.active),
      matrix: at(op.matrix.span),
      rowStride,
      outputs: op.outputs,
      out: at(op.out),
      continues: op.continues ? 1 : 0,
      bias: at(op.bias),
      residual: at(op.residual),
      blocksPerRound,
      flagged: flagged === null ? 0 : at(flagged.active),
      flaggedWidth: flagged?.width ?? 0,
    },
  );
}

const activeWarps = { 1: 16, 2: 16, 4: 16, 8: 16 } as const;

/** Groups of 8 rows one after the other: a set is the union over all rows, so each group reads it whole. */
export function planActiveInputs(op: ActiveInputsOp, opIndex: number, facts: LaunchFacts): Launch[] {
  if (op.outputs === 0) return [];
  const neuronBlocks = Math.max(1, Math.ceil(op.xStride / blockInputs));
  const { type, rowStride } = op.matrix;
  const perLane = type !== 'f32' && adjacent(at(op.matrix.span), rowStride, type, 2) ? 2 : 1;
  const columns = 32 * perLane;
  return rowGroups(op.rows).map(([begin, rows]) => {
    const variant = rowsVariant(rows);
    const warps = Math.min(activeWarps[variant], neuronBlocks);
    const fixedBytes = (2 * neuronBlocks + variant * columns) * 4;
    const blocksPerRound = roundOf(neuronBlocks, facts.sharedBytes - fixedBytes, variant * columns * 4);
    return launch(
      opIndex,
      `active_inputs_${type}_r${variant}_c${perLane}`,
      'ActiveInputsParams',
      {
        grid: [Math.ceil(op.outputs / columns)],
        threads: warps * 32,
        sharedBytes: fixedBytes + blocksPerRound * variant * columns * 4,
        overlapsPrevious: true,
      },
      {
        rows,
        x: at(op.x) + begin * op.xStride * 4,
        xStride: op.xStride,
        active: at(op.active),
        listBegin: op.listBegin,
        listEnd: op.listEnd,
        slots: at(op.slots),
        neuronBlocks,
        matrix: at(op.matrix.span),
        rowStride,
        outputs: op.outputs,
        out: at(op.out) + begin * op.outputs * 4,
        continues: op.continues ? 1 : 0,
        bias: at(op.bias),
        residual: op.residual === null ? 0 : at(op.residual) + begin * op.outputs * 4,
        blocksPerRound,
      },
    );
  });
}

export function planActiveOutputs(op: ActiveOutputsOp, opIndex: number, facts: LaunchFacts): Launch[] {
  // A list whose end only the device knows may be empty or hold every neuron; the blocks of threads share what there is.
  const most = op.listEnd < 0 ? op.outStride : op.listEnd - op.listBegin;
  if (most <= 0) return [];
  const grid = Math.min(Math.ceil(most / 32), 2 * facts.multiprocessors);
  return rowGroups(op.rows).map(([begin, rows]) => {
    const variant = rowsVariant(rows);
    const shape = outputRowsShape(op.inputs, variant, facts);
    return launch(
      opIndex,
      `output_rows_${op.matrix.type}_r${variant}`,
      'OutputRowsParams',
      { ...shape.launch, grid: [grid], overlapsPrevious: true },
      {
        rows,
        x: at(op.x) + begin * op.inputs * 4,
        xStride: op.inputs,
        inputs: op.inputs,
        matrix: at(op.matrix.span),
        rowStride: op.matrix.rowStride,
        outputs: 0,
        active: at(op.active),
        listBegin: op.listBegin,
        listEnd: op.listEnd,
        slots: at(op.slots),
        out: at(op.out) + begin * op.outStride * 4,
        outStride: op.outStride,
        continues: 0,
        bias: at(op.bias),
        residual: 0,
        activation: -1,
        threshold: 0,
        blocksPerRound: shape.blocksPerRound,
      },
    );
  });
}
