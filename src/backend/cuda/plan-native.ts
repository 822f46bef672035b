import type { ActiveInputsOp, ActiveOutputsOp, LinearOp, Op } from '../ops.js';
import { at, type Launch, type LaunchFacts, launch, statusOf } from './launch.js';
import { type FusedActivation, noActivation } from './plan-linear-rows.js';

/** Products that have an arithmetic of their own in `native` numerics. */
export type NativeOp = LinearOp | ActiveInputsOp | ActiveOutputsOp;

/** Oldest compute capability, times 10, whose tensor cores sum F16 and BF16 products in F32. */
export const oldestNativeArchitecture = 80;

/**
 * The op where it is a product of prompt positions in native numerics, on weights that tensor cores take, else null. Products
 * with F32 weights are computed by the portable kernels in both modes.
 */
export function nativeProduct(op: Op): NativeOp | null {
  switch (op.kind) {
    case 'linear':
    case 'active-inputs':
    case 'active-outputs':
      return op.numerics === 'native' && op.matrix.type !== 'f32' ? op : null;
    default:
      return null;
  }
}

/**
 * The launch of a native product; null where there is nothing to compute. The tile is chosen for speed alone: no result
 * depends on it (cuda/native.cu).
 */
export function planNative(
  op: NativeOp,
  opIndex: number,
  activation: FusedActivation | null,
  facts: LaunchFacts,
): Launch | null {
  const inputMajor = op.matrix.layout === 'input-major';
  const columns = columnsOf(op);
  if (op.rows === 0 || columns === 0) return null;
  const large = op.rows > 64 && 2 * tiles(op.rows, columns, 128) >= facts.multiprocessors;
  const tile = large ? 128 : 64;
  const fused = activation ?? noActivation;
  return launch(
    opIndex,
    `native_tiles_${op.matrix.type}_${inputMajor ? 'in' : 'out'}_${tile}x${tile}`,
    'NativeTilesParams',
    { grid: [Math.ceil(columns / tile), Math.ceil(op.rows / tile)], threads: large ? 256 : 128 },
    {
      rows: op.rows,
      xStride: xStrideOf(op),
      matrix: at(op.matrix.span),
      rowStride: op.matrix.rowStride,
      activation: fused.code,
      threshold: fused.threshold,
      status: statusOf(facts, opIndex),
      bias: at(op.bias),
      ...own(op),
    },
  );
}

function tiles(rows: number, columns: number, tile: number): number {
  return Math.ceil(rows / tile) * Math.ceil(columns / tile);
}

function xStrideOf(op: NativeOp): number {
  return op.kind === 'active-outputs' ? op.inputs : op.xStride;
}

/** Columns that the grid covers; of listed outputs as many as the list can hold. */
function columnsOf(op: NativeOp): number {
  if (op.kind !== 'active-outputs') return op.outputs;
  const most = op.active.byteLength / 4 - 1;
  return (op.listEnd < 0 ? most : Math.min(most, op.listEnd)) - op.listBegin;
}

/** What the three ops say in words of their own. */
function own(op: NativeOp) {
  switch (op.kind) {
    case 'linear':
      return {
        x: at(op.x) + op.inputBegin * 4,
        inputs: op.inputEnd - op.inputBegin,
        outputs: op.outputs,
        out: at(op.out) + op.outOffset * 4,
        outStride: op.outStride,
        continues: op.continues ? 1 : 0,
        residual: op.residual === null ? 0 : at(op.residual) + op.outOffset * 4,
        ...everything,
      };
    case 'active-inputs':
      return {
        x: at(op.x),
        inputs: op.xStride,
        outputs: op.outputs,
        out: at(op.out),
        outStride: op.outputs,
        continues: op.continues ? 1 : 0,
        residual: at(op.residual),
        ...listed(op),
      };
    case 'active-outputs':
      return {
        x: at(op.x),
        inputs: op.inputs,
        outputs: 0, // the list says how many
        out: at(op.out),
        outStride: op.outStride,
        continues: 0,
        residual: 0,
        ...listed(op),
      };
  }
}

const everything = { active: 0, listBegin: 0, listEnd: 0, slots: 0 };

function listed({ active, listBegin, listEnd, slots }: ActiveInputsOp | ActiveOutputsOp) {
  return { active: at(active), listBegin, listEnd, slots: at(slots) };
}
