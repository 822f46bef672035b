import type { LinearOp, PlacedOp } from '../ops.js';
import { type Fused, fusableActivation, overlap, sameShape } from './fuse.js';
import { at, type Launch, type LaunchFacts, launch, statusOf } from './launch.js';
import { noActivation } from './plan-linear-rows.js';
import { nativeProduct } from './plan-native.js';

/** Device memory for rounded activations in native numerics; longer products are computed in groups of rows. */
export const nativeRoomBytes = 16 * 1024 * 1024;

/** A kernel of cuda/native-stages.cu. */
export interface NativeTile {
  readonly rows: number;
  readonly columns: number;
  readonly threads: number;
  /** Stages of 64 inputs in shared memory. */
  readonly depth: number;
  /** Part of a multiprocessor's tensor rate that it reaches, in proportion to the others as an H200 gave it. */
  readonly share: number;
}

export const nativeTiles: readonly NativeTile[] = [
  { rows: 128, columns: 256, threads: 256, depth: 4, share: 1 },
  { rows: 128, columns: 160, threads: 256, depth: 4, share: 0.93 },
  { rows: 128, columns: 128, threads: 256, depth: 4, share: 0.92 },
  { rows: 128, columns: 80, threads: 256, depth: 3, share: 0.79 },
];
const stageInputs = 64;
const padding = 8;

export function nativeTileBytes({ rows, columns, depth }: NativeTile): number {
  return depth * (rows * (stageInputs + padding) + stageInputs * (columns + padding)) * 2;
}

/** Fewer rows are bound by memory, which the kernels of native.cu read as fast. */
const fewestRows = 65;
const mostProducts = 3;

/**
 * The launches of native products from `index` on that read one x, if their matrices are whole, input-major and lie at
 * multiples of 16 bytes: x is rounded once, and up to three products share a launch. Null where that does not hold.
 */
export function planNativeStages(
  ops: readonly PlacedOp[],
  index: number,
  facts: LaunchFacts,
): Fused<Launch[]> | null {
  const first = wholeProduct(ops[index]?.op ?? null);
  if (first === null || facts.nativeRoom === undefined) return null;
  const inputs = first.inputEnd - first.inputBegin;
  const pitch = Math.ceil(inputs / 8) * 8;
  const most = Math.floor(nativeRoomBytes / (pitch * 2));
  const rowsAtOnce = first.rows <= most ? first.rows : Math.floor(most / 128) * 128;
  const fitting = nativeTiles.filter((tile) => nativeTileBytes(tile) <= facts.sharedBytes);
  if (rowsAtOnce === 0 || fitting.length === 0) return null;
  const products = [first];
  for (let next = index + 1; products.length < mostProducts; next += 1) {
    const other = wholeProduct(ops[next]?.op ?? null);
    if (other === null || !shareLaunch(products, other)) break;
    products.push(other);
  }
  let next = index + products.length;
  const behind = ops[next]?.op;
  const activation =
    products.length === 1 && behind?.kind === 'activate' ? fusableActivation(first, behind) : null;
  if (activation !== null) next += 1;
  const launches: Launch[] = [];
  for (let begin = 0; begin < first.rows; begin += rowsAtOnce) {
    const rows = Math.min(rowsAtOnce, first.rows - begin);
    launches.push(
      launch(
        index,
        `native_round_${first.matrix.type}_inputs`,
        'NativeRoundParams',
        {
          grid: [Math.min(Math.ceil((rows * pitch) / 8 / roundThreads), 8 * facts.multiprocessors)],
          threads: roundThreads,
          overlapsPrevious: true,
        },
        {
          rows,
          x: at(first.x) + (begin * first.xStride + first.inputBegin) * 4,
          xStride: first.xStride,
          inputs,
          rounded: facts.nativeRoom,
          pitch,
          status: statusOf(facts, index),
        },
      ),
      planProducts(products, index, [begin, rows], pitch, activation ?? noActivation, fitting, facts),
    );
  }
  return { value: launches, next };
}

const roundThreads = 256;

function planProducts(
  products: readonly LinearOp[],
  opIndex: number,
  [begin, rows]: readonly [number, number],
  pitch: number,
  { code, threshold }: { readonly code: number; readonly threshold: number },
  fitting: readonly NativeTile[],
  facts: LaunchFacts,
): Launch {
  const [first, second, third] = products as [LinearOp, LinearOp?, LinearOp?];
  const widest = Math.max(...products.map(({ outputs }) => outputs));
  const cost = (tile: NativeTile): number => {
    const tiles = products.reduce((sum, { outputs }) => sum + Math.ceil(outputs / tile.columns), 0);
    const turns = Math.ceil((tiles * Math.ceil(rows / tile.rows)) / facts.multiprocessors);
    return (turns * tile.rows * tile.columns) / tile.share;
  };
  const best = fitting.reduce((a, b) => (cost(b) < cost(a) ? b : a));
  const tile = fitting.find((one) => nativeTileName(one) === facts.variants?.native) ?? best;
  const own = (op: LinearOp | undefined) => ({
    matrix: op === undefined ? 0 : at(op.matrix.span),
    out: op === undefined ? 0 : at(op.out) + (begin * op.outStride + op.outOffset) * 4,
    bias: op === undefined ? 0 : at(op.bias),
    residual:
      op === undefined || op.residual === null
        ? 0
        : at(op.residual) + (begin * op.outStride + op.outOffset) * 4,
    outputs: op?.outputs ?? 0,
  });
  const [a, b, c] = [own(first), own(second), own(third)];
  return launch(
    opIndex,
    `native_stages_${first.matrix.type}_${nativeTileName(tile)}`,
    'NativeStagesParams',
    {
      grid: [Math.ceil(rows / tile.rows), Math.ceil(widest / tile.columns), products.length],
      threads: tile.threads,
      sharedBytes: nativeTileBytes(tile),
      overlapsPrevious: true,
    },
    {
      rows,
      x: facts.nativeRoom!,
      xPitch: pitch,
      inputs: first.inputEnd - first.inputBegin,
      rowStride: first.matrix.rowStride,
      outStride: first.outStride,
      continues: first.continues ? 1 : 0,
      activation: code,
      threshold,
      matrix0: a.matrix,
      out0: a.out,
      bias0: a.bias,
      residual0: a.residual,
      outputs0: a.outputs,
      matrix1: b.matrix,
      out1: b.out,
      bias1: b.bias,
      residual1: b.residual,
      outputs1: b.outputs,
      matrix2: c.matrix,
      out2: c.out,
      bias2: c.bias,
      residual2: c.residual,
      outputs2: c.outputs,
    },
  );
}

/** `128x160`; ends the names of its kernels. */
export function nativeTileName({ rows, columns }: NativeTile): string {
  return `${rows}x${columns}`;
}

/** The op where it is a native product of many rows with a whole matrix that can be copied 16 bytes at a time. */
function wholeProduct(op: PlacedOp['op'] | null): LinearOp | null {
  if (op?.kind !== 'linear' || nativeProduct(op) === null) return null;
  const { matrix } = op;
  const aligned = [at(matrix.span), matrix.rowStride * 2].every((bytes) => bytes % 16 === 0);
  const serves =
    op.rows >= fewestRows && op.outputs > 0 && op.inputEnd > op.inputBegin && matrix.layout === 'input-major';
  return serves && aligned ? op : null;
}

function shareLaunch(products: readonly LinearOp[], b: LinearOp): boolean {
  const a = products[0]!;
  return (
    sameShape(a, b) &&
    products.every(({ out }) => !overlap(out, b.out) && (b.residual === null || !overlap(out, b.residual))) &&
    !overlap(a.x, b.out)
  );
}
