import { type StoredType, storedBytes } from '../../base/stored-type.js';
import {
  blockInputs,
  type CompactOp,
  type GuessRowsOp,
  type HeldInputsOp,
  type HeldOutputsOp,
  type Op,
  type PlacedOp,
  type RetainRowsOp,
} from '../ops.js';
import { rowIndexLayout } from '../row-index.js';
import type { Fused } from './fuse.js';
import { at, type Launch, type LaunchFacts, launch, rowsVariant } from './launch.js';
import { moveBlocks, moveThreads } from './move-runs.js';
import { outputRowsShape } from './plan-linear.js';
import { roundOf } from './plan-linear-rows.js';

/** Shared words of the block of threads that writes a set; cuda/active-set.cuh. */
const compactWords = 1024 + 32;

/**
 * A set with the lookup of its rows; where no place is given anew, the product over it, too. Null where no such ops
 * begin at `index`.
 */
export function planLookup(
  ops: readonly PlacedOp[],
  index: number,
  facts: LaunchFacts,
): Fused<readonly Launch[]> | null {
  const compact = ops[index]!.op;
  const lookup = ops[index + 1]?.op;
  if (compact.kind !== 'compact' || lookup?.kind !== 'retain-rows' || !looksUp(lookup, compact)) return null;
  const product = ops[index + 2]?.op;
  if (!lookup.index.replaces && product?.kind === 'held-inputs' && readsSet(product, compact, lookup)) {
    return { value: planHeldInputs(product, index + 2, facts, lookup), next: index + 3 };
  }
  return { value: [planRetainRows(compact, lookup, index + 1)], next: index + 2 };
}

function looksUp({ active, index }: RetainRowsOp, compact: CompactOp): boolean {
  return at(active) === at(compact.active) && index.neurons === compact.width;
}

function readsSet(product: HeldInputsOp, compact: CompactOp, { index }: RetainRowsOp): boolean {
  return (
    product.outputs > 0 &&
    product.rows === compact.rows &&
    at(product.x) === at(compact.x) &&
    at(product.active) === at(compact.active) &&
    at(product.index.span) === at(index.span)
  );
}

/** `compact`: the set is made in the same launch. */
export function planRetainRows(
  compact: CompactOp | null,
  { active, index, hits }: RetainRowsOp,
  opIndex: number,
): Launch {
  const word = (offset: number): number => (index.replaces ? at(index.span) + 4 * offset : 0);
  const layout = rowIndexLayout(index);
  return launch(
    opIndex,
    'retain_rows',
    'RetainRowsParams',
    {
      grid: [1],
      threads: 1024,
      sharedBytes: 4 * (compactWords + (index.replaces ? Math.ceil(index.places / 32) : 0)),
      overlapsPrevious: true,
    },
    {
      rows: compact?.rows ?? 0,
      width: index.neurons,
      x: compact === null ? 0 : at(compact.x),
      active: at(active),
      places: index.places,
      placeOf: at(index.span),
      neuronOf: word(layout.neuronOf),
      order: word(layout.order),
      used: word(layout.used),
      missing: word(layout.missing),
      hits: at(hits),
    },
  );
}

/** Rows of a guess, by few small blocks of threads that leave the others room; one more makes the index. */
export function planGuessRows(op: GuessRowsOp, opIndex: number): Launch {
  const { set, index, held, matrix, guessed } = op;
  return launch(
    opIndex,
    'guess_rows',
    'GuessRowsParams',
    { grid: [1 + Math.min(moveBlocks, index.places)], threads: moveThreads, beside: true },
    {
      set: at(set),
      neurons: index.neurons,
      places: index.places,
      placeOf: at(index.span),
      held: at(held),
      matrix: at(matrix.span),
      rowBytes: matrix.rowStride * storedBytes[matrix.type],
      guessed: at(guessed),
    },
  );
}

/** Whether an op has to wait for a guess that may run beside the ops in front of it. */
export function awaitsGuess(op: Op, { set, index }: GuessRowsOp): boolean {
  if (op.kind === 'compact') return at(op.active) === at(set);
  return 'index' in op && op.kind !== 'guess-rows' && at(op.index.span) === at(index.span);
}

/** Of kernels for so many rows; more threads have too few registers. */
const mostThreads = { 1: 640, 2: 640, 4: 640, 8: 320 } as const;

/** `lookup`: the set is made, and its rows with a place are counted, beside the product. */
export function planHeldInputs(
  op: HeldInputsOp,
  opIndex: number,
  facts: LaunchFacts,
  lookup: RetainRowsOp | null = null,
): Launch[] {
  if (op.outputs === 0) return [];
  const variant = rowsVariant(op.rows);
  const { type, rowStride, span } = op.matrix;
  const width = op.index.neurons;
  const perLane = 16 / storedBytes[type];
  const aligned = [at(span), at(op.held)].every((address) => adjacent(address, rowStride, type, perLane));
  const lanes = aligned ? 8 : 32;
  const columns = aligned ? lanes * perLane : lanes;
  const blocks = Math.ceil(width / blockInputs);
  // All blocks in one turn where shared memory holds the inputs of so many groups and the sums of one block at least.
  const groupBytes = variant * blockInputs * 4;
  const least = (blocks + 2 * variant * columns) * 4;
  const mostGroups = Math.min(
    mostThreads[variant] / lanes,
    Math.floor((facts.sharedBytes - least) / groupBytes),
  );
  const turns = Math.ceil(blocks / mostGroups);
  const wanted = Math.ceil((Math.ceil(blocks / turns) * lanes) / 32) * 32;
  const threads = Math.max(32, Math.min(wanted, Math.floor((mostGroups * lanes) / 32) * 32));
  const fixedBytes = (threads / lanes) * groupBytes + (blocks + variant * columns) * 4;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, variant * columns * 4);
  return [
    launch(
      opIndex,
      `held_inputs_${type}_r${variant}_${aligned ? '16B' : '1'}`,
      'HeldInputsParams',
      {
        grid: [Math.ceil(op.outputs / columns) + (lookup === null ? 0 : 1)],
        threads,
        sharedBytes: Math.max(compactWords * 4, fixedBytes + blocksPerRound * variant * columns * 4),
        overlapsPrevious: true,
      },
      {
        rows: op.rows,
        x: at(op.x),
        width,
        active: lookup === null ? 0 : at(op.active),
        hits: lookup === null ? 0 : at(lookup.hits),
        placeOf: at(op.index.span),
        held: at(op.held),
        matrix: at(span),
        rowStride,
        outputs: op.outputs,
        out: at(op.out),
        bias: at(op.bias),
        residual: at(op.residual),
        blocksPerRound,
      },
    ),
  ];
}

/** Rows of the active set; the blocks of threads share what there is. */
export function planHeldOutputs(op: HeldOutputsOp, opIndex: number, facts: LaunchFacts): Launch[] {
  const { neurons } = op.index;
  if (neurons === 0) return [];
  const variant = rowsVariant(op.rows);
  const shape = outputRowsShape(op.inputs, variant, facts);
  return [
    launch(
      opIndex,
      `held_outputs_${op.matrix.type}_r${variant}`,
      'HeldOutputsParams',
      {
        ...shape.launch,
        grid: [Math.min(Math.ceil(neurons / 32), 2 * facts.multiprocessors)],
        overlapsPrevious: true,
      },
      {
        rows: op.rows,
        x: at(op.x),
        inputs: op.inputs,
        active: at(op.active),
        placeOf: at(op.index.span),
        held: at(op.held),
        matrix: at(op.matrix.span),
        rowStride: op.matrix.rowStride,
        out: at(op.out),
        outStride: op.outStride,
        bias: at(op.bias),
        blocksPerRound: shape.blocksPerRound,
      },
    ),
  ];
}

/** Whether `count` adjacent weights can be read as one word in every row. */
function adjacent(address: number, rowStride: number, type: StoredType, count: number): boolean {
  return address % (count * storedBytes[type]) === 0 && rowStride % count === 0;
}
