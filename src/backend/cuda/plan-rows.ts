import {
  type ActivateOp,
  type AddOp,
  blockInputs,
  type GatedProductOp,
  type GatherOp,
  type GreedyOp,
  type NormOp,
  type RopeOp,
  type StoreKvOp,
} from '../ops.js';
import { activationCodes } from '../program.js';
import { at, type Launch, type LaunchFacts, launch, statusOf } from './launch.js';
import { paddedBlock } from './stream-shape.js';

const elementThreads = 256;
/** Blocks of threads beyond which more of them bring nothing: each goes on to further elements. */
const mostBlocks = 4096;

function blocksFor(count: number): number {
  return Math.min(mostBlocks, Math.ceil(count / elementThreads));
}

export function planGather(op: GatherOp, opIndex: number, facts: LaunchFacts): Launch[] {
  if (op.rows === 0 || op.columns === 0) return [];
  return [
    launch(
      opIndex,
      `gather_${op.type}`,
      'GatherParams',
      { grid: [blocksFor(op.columns), op.rows], threads: elementThreads, overlapsPrevious: true },
      {
        rows: op.rows,
        columns: op.columns,
        table: at(op.table),
        tableRows: op.tableRows,
        rowStride: op.rowStride,
        columnStride: op.columnStride,
        ids: at(op.ids),
        out: at(op.out),
        status: statusOf(facts, opIndex),
      },
    ),
  ];
}

export function planActivate(op: ActivateOp, opIndex: number): Launch[] {
  if (op.count === 0) return [];
  return [
    launch(
      opIndex,
      'activate',
      'ActivateParams',
      { grid: [blocksFor(op.count)], threads: elementThreads, overlapsPrevious: true },
      {
        count: op.count,
        activation: activationCodes[op.activation],
        threshold: Math.fround(op.threshold),
        x: at(op.x),
      },
    ),
  ];
}

export function planGatedProduct(op: GatedProductOp, opIndex: number): Launch[] {
  if (op.count === 0) return [];
  return [
    launch(
      opIndex,
      'gated_product',
      'GatedProductParams',
      { grid: [blocksFor(op.count)], threads: elementThreads, overlapsPrevious: true },
      { count: op.count, gate: at(op.gate), up: at(op.up) },
    ),
  ];
}

export function planGreedy({ rows, width, x, out }: GreedyOp, opIndex: number): Launch[] {
  if (rows === 0) return [];
  return [
    launch(
      opIndex,
      'greedy',
      'GreedyParams',
      { grid: [rows], threads: 1024, overlapsPrevious: true },
      { width, x: at(x), out: at(out) },
    ),
  ];
}

export function planAdd(op: AddOp, opIndex: number): Launch[] {
  if (op.count === 0) return [];
  return [
    launch(
      opIndex,
      'add',
      'AddParams',
      { grid: [blocksFor(op.count)], threads: elementThreads, overlapsPrevious: true },
      { count: op.count, a: at(op.a), b: at(op.b), out: at(op.out) },
    ),
  ];
}

/** Four elements a thread, so that a row is read in one go. */
function normThreads(width: number): number {
  return Math.min(1024, Math.max(64, Math.ceil(width / 128) * 32));
}

export function planNorm(op: NormOp, opIndex: number): Launch[] {
  if (op.rows === 0) return [];
  const blocks = Math.ceil(op.width / blockInputs);
  return [
    launch(
      opIndex,
      'norm_rows',
      'NormParams',
      {
        grid: [op.rows],
        threads: normThreads(op.width),
        sharedBytes: blocks * (paddedBlock + 1) * 4,
        overlapsPrevious: true,
      },
      {
        rms: op.norm === 'rms' ? 1 : 0,
        width: op.width,
        epsilon: Math.fround(op.epsilon),
        x: at(op.x),
        gamma: at(op.gamma),
        beta: at(op.beta),
        out: at(op.out),
      },
    ),
  ];
}

export function planRope(op: RopeOp, opIndex: number): Launch[] {
  const half = op.rotary / 2;
  if (op.rows === 0 || half === 0) return [];
  return [
    launch(
      opIndex,
      'rope',
      'RopeParams',
      { grid: [blocksFor(op.heads * half), op.rows], threads: elementThreads, overlapsPrevious: true },
      {
        heads: op.heads,
        headDim: op.headDim,
        half,
        positions: at(op.positions),
        cosines: at(op.cosines),
        sines: at(op.sines),
        x: at(op.x),
      },
    ),
  ];
}

export function planStoreKv(op: StoreKvOp, opIndex: number, facts: LaunchFacts): Launch[] {
  if (op.rows === 0) return [];
  const { cache } = op;
  return [
    launch(
      opIndex,
      `store_kv_${cache.type}`,
      'StoreKvParams',
      {
        grid: [blocksFor(cache.kvHeads * cache.headDim), op.rows],
        threads: elementThreads,
        overlapsPrevious: true,
      },
      {
        positions: at(op.positions),
        keys: at(op.keys),
        values: at(op.values),
        keyCache: at(cache.keys),
        valueCache: at(cache.values),
        kvHeads: cache.kvHeads,
        headDim: cache.headDim,
        capacity: cache.capacity,
        status: statusOf(facts, opIndex),
      },
    ),
  ];
}
