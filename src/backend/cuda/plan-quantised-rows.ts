import { blockInputs, type PlacedOp, type QuantisedLinearOp } from '../ops.js';
import { type Fused, fusableActivation } from './fuse.js';
import { at, type Launch, type LaunchFacts, launch } from './launch.js';
import { type FusedActivation, noActivation, roundOf } from './plan-linear-rows.js';

/** Up to three quantised products of the same inputs, and the activation behind a single one. */
interface QuantisedGroup {
  readonly products: readonly QuantisedLinearOp[];
  readonly opIndex: number;
  readonly activation: FusedActivation | null;
}

/** Lanes and columns a lane of a group of lanes; the kernels are made for these. */
export type QuantisedShape = readonly [lanes: 4 | 8 | 32, perLane: 4 | 1];

/** Threads of a block at most; the kernels' launch bounds. */
const mostThreads = 640;
/** Rows that one launch serves: a kernel for 8 takes ten seconds to compile. */
const mostRows = 4;

/**
 * Launches of the quantised products from `index` on, and the index behind them. More than 4 rows are served in groups of
 * 4, each of which reads the weights again.
 */
export function planQuantised(ops: readonly PlacedOp[], index: number, facts: LaunchFacts): Fused<Launch[]> {
  const { group, next } = groupAt(ops, index);
  const { rows, outputs } = group.products[0]!;
  if (rows === 0 || outputs === 0) return { value: [], next };
  const value: Launch[] = [];
  for (let begin = 0; begin < rows; begin += mostRows) {
    value.push(planQuantisedRows(group, begin, Math.min(mostRows, rows - begin), facts));
  }
  return { value, next };
}

function groupAt(ops: readonly PlacedOp[], index: number): { group: QuantisedGroup; next: number } {
  const first = ops[index]!.op as QuantisedLinearOp;
  const products = [first];
  let next = index + 1;
  while (products.length < 3) {
    const candidate = ops[next]?.op;
    if (candidate?.kind !== 'quantised-linear' || !shareLaunch(products, candidate)) break;
    products.push(candidate);
    next += 1;
  }
  const behind = ops[next]?.op;
  const activation =
    products.length === 1 && behind?.kind === 'activate'
      ? fusableActivation({ ...first, outOffset: 0, outStride: first.outputs }, behind)
      : null;
  return {
    group: { products, opIndex: index, activation },
    next: activation === null ? next : next + 1,
  };
}

function shareLaunch(products: readonly QuantisedLinearOp[], b: QuantisedLinearOp): boolean {
  const a = products[0]!;
  return (
    a.rows === b.rows &&
    a.rows > 0 &&
    at(a.x) === at(b.x) &&
    a.inputs === b.inputs &&
    a.outputs > 0 &&
    b.outputs > 0 &&
    a.type === b.type &&
    b.residual === null &&
    products.every(
      ({ out }) => at(out) >= at(b.out) + b.out.byteLength || at(b.out) >= at(out) + out.byteLength,
    )
  );
}

/** `shape` stands in for the planner's choice, for measurements. */
function planQuantisedRows(
  { products, opIndex, activation }: QuantisedGroup,
  rowBegin: number,
  rows: number,
  facts: LaunchFacts,
  shape: QuantisedShape = shapeOf(products, rows, facts),
): Launch {
  const op = products[0]!;
  const variant = rows === 1 ? 1 : rows === 2 ? 2 : 4;
  const blocks = Math.max(1, Math.ceil(op.inputs / blockInputs));
  const [lanes, perLane] = shape;
  const columns = lanes * perLane;
  const mostGroups = mostThreads / lanes;
  const groupsWanted = Math.ceil(blocks / Math.ceil(blocks / mostGroups));
  const threads = Math.ceil((groupsWanted * lanes) / 32) * 32;
  const fixedBytes = ((threads / lanes) * variant * blockInputs + variant * columns) * 4;
  const roundBytes = variant * columns * 4;
  const blocksPerRound = roundOf(blocks, facts.sharedBytes - fixedBytes, roundBytes);
  const width = Math.max(...products.map(({ outputs }) => outputs));
  const fused = activation ?? noActivation;
  const [a, b = null, c = null] = products;
  const outOf = (product: QuantisedLinearOp | null) =>
    product === null ? 0 : at(product.out) + rowBegin * product.outputs * 4;
  return launch(
    opIndex,
    `quantised_rows_${op.type}_r${variant}_${lanes}x${perLane}`,
    'QuantisedRowsParams',
    {
      grid: [Math.ceil(width / columns), products.length],
      threads,
      sharedBytes: fixedBytes + blocksPerRound * roundBytes,
      overlapsPrevious: true,
    },
    {
      rows,
      x: at(op.x) + rowBegin * op.inputs * 4,
      inputs: op.inputs,
      blocksPerRound,
      activation: fused.code,
      threshold: fused.threshold,
      codes0: at(a!.codes),
      scales0: at(a!.scales),
      out0: outOf(a!),
      bias0: at(a!.bias),
      residual0: a!.residual === null ? 0 : at(a!.residual) + rowBegin * a!.outputs * 4,
      outputs0: a!.outputs,
      codes1: b === null ? 0 : at(b.codes),
      scales1: b === null ? 0 : at(b.scales),
      out1: outOf(b),
      bias1: b === null ? 0 : at(b.bias),
      outputs1: b === null ? 0 : b.outputs,
      codes2: c === null ? 0 : at(c.codes),
      scales2: c === null ? 0 : at(c.scales),
      out2: outOf(c),
      bias2: c === null ? 0 : at(c.bias),
      outputs2: c === null ? 0 : c.outputs,
    },
  );
}

/**
 * Eight lanes read runs of 128 bytes; where that makes fewer blocks of threads than the device has multiprocessors, four
 * lanes do. Where words or scales of four columns do not lie together, one column a lane.
 */
function shapeOf(products: readonly QuantisedLinearOp[], rows: number, facts: LaunchFacts): QuantisedShape {
  const fours = products.every(
    ({ codes, scales, outputs }) => at(codes) % 16 === 0 && at(scales) % 8 === 0 && outputs % 4 === 0,
  );
  if (!fours) return [32, 1];
  const wide = products.reduce((sum, { outputs }) => sum + Math.ceil(outputs / 32), 0);
  return wide >= facts.multiprocessors || rows > 1 ? [8, 4] : [4, 4];
}
