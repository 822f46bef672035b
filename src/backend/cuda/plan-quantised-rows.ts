import type { PlacedOp, QuantisedLinearOp } from '../ops.js';
import { type Fused, fusableActivation } from './fuse.js';
import { at, type Launch, type LaunchFacts, launch } from './launch.js';
import { type FusedActivation, noActivation } from './plan-linear-rows.js';
import { quantisedShape } from './quantised-shape.js';

/** Up to three quantised products of the same inputs, and the activation behind a single one. */
interface QuantisedGroup {
  readonly products: readonly QuantisedLinearOp[];
  readonly opIndex: number;
  readonly activation: FusedActivation | null;
}

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

function planQuantisedRows(
  { products, opIndex, activation }: QuantisedGroup,
  rowBegin: number,
  rows: number,
  facts: LaunchFacts,
): Launch {
  const op = products[0]!;
  const variant = rows === 1 ? 1 : rows === 2 ? 2 : 4;
  const aligned = products.every(
    ({ codes, scales, outputs }) => at(codes) % 16 === 0 && at(scales) % 8 === 0 && outputs % 4 === 0,
  );
  const outputs = products.map((product) => product.outputs);
  const shape = quantisedShape({ type: op.type, variant, inputs: op.inputs, outputs, aligned }, facts);
  const fused = activation ?? noActivation;
  const [a, b = null, c = null] = products;
  const outOf = (product: QuantisedLinearOp | null) =>
    product === null ? 0 : at(product.out) + rowBegin * product.outputs * 4;
  return launch(
    opIndex,
    `quantised_rows_${op.type}_r${variant}_${shape.kernel}`,
    'QuantisedRowsParams',
    {
      grid: shape.kernel === 'any' ? [shape.grid, products.length] : [shape.grid],
      threads: shape.warps * 32,
      sharedBytes: shape.sharedBytes,
      overlapsPrevious: true,
    },
    {
      rows,
      x: at(op.x) + rowBegin * op.inputs * 4,
      inputs: op.inputs,
      blocksPerRound: shape.blocksPerRound,
      quads: outputs.reduce((sum, count) => sum + Math.floor(count / 4), 0),
      depth: shape.depth,
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
