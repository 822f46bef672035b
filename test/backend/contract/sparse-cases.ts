import type { ActiveInputsOp, Op } from '../../../src/backend/ops.js';
import type { StoredType } from '../../../src/base/stored-type.js';
import { type CaseGroup, type ContractCase, oddSizes, rowCounts, storedTypes } from './case.js';
import type { CaseRandom } from './case-random.js';
import type { Workbench } from './workbench.js';

interface SparseShape {
  readonly type: StoredType;
  readonly rows: number;
  readonly width: number; // neurons
  readonly other: number; // outputs of active-inputs, inputs of active-outputs
  readonly activeShare: number;
}

const shares = [0.04, 0.3, 0, 1];

export function sparseGroups(): CaseGroup[] {
  return [
    {
      name: 'compact',
      cases: [...oddSizes, 1000, 5000].flatMap((width) =>
        [1, 2, 5, 33].map((rows) => compactCase(rows, width)),
      ),
    },
    ...storedTypes.flatMap((type) => [
      { name: `active-inputs, ${type}`, cases: shapes(type).map(activeInputsCase) },
      { name: `active-outputs, ${type}`, cases: shapes(type).map(activeOutputsCase) },
    ]),
  ];
}

function shapes(type: StoredType): SparseShape[] {
  const share = (index: number): number => shares[index % shares.length]!;
  return [
    ...oddSizes.map((width, i) => ({ type, rows: 1 + (i % 3), width, other: 37, activeShare: share(i) })),
    ...oddSizes.map((other, i) => ({ type, rows: 1 + (i % 4), width: 300, other, activeShare: share(i) })),
    ...rowCounts.map((rows, i) => ({ type, rows, width: 390, other: 70, activeShare: share(i) })),
    ...rowCounts.map((rows) => ({ type, rows, width: 385, other: 131, activeShare: 0.1 })),
    { type, rows: 1, width: 2048, other: 515, activeShare: 0.04 },
    { type, rows: 3, width: 1000, other: 259, activeShare: 1 },
  ];
}

function describe({ rows, width, other, activeShare }: SparseShape): string {
  return `${rows} rows, ${width} neurons, ${other} other, ${activeShare} active`;
}

function compactCase(rows: number, width: number): ContractCase {
  return {
    name: `${rows} rows, ${width} wide`,
    build: (bench) => {
      const { random } = bench;
      const density = random.pick([0, 0.01, 0.1, 1]);
      const x = random
        .floats(rows * width, 'zero')
        .map((zero) =>
          random.chance(density)
            ? random.pick([1, -1, 2 ** -149, Number.NaN, Number.POSITIVE_INFINITY])
            : zero,
        );
      return [
        {
          kind: 'compact',
          rows,
          width,
          x: bench.floats('x', x),
          active: bench.active('active', width, null),
        },
      ];
    },
  };
}

/** Activations [rows, stride] whose columns outside the union are zero (of either sign), and that union. */
function activations(
  random: CaseRandom,
  { rows, width, activeShare }: SparseShape,
  stride: number,
): { x: Float32Array; neurons: number[] } {
  const x = random.floats(rows * stride, 'zero');
  const neurons: number[] = [];
  for (let neuron = 0; neuron < width; neuron++) {
    if (!random.chance(activeShare)) continue;
    neurons.push(neuron);
    const sure = random.below(rows); // at least one row uses it
    for (let t = 0; t < rows; t++) {
      if (t === sure || random.chance(0.5)) x[t * stride + neuron] = random.value('plain') || 1;
    }
  }
  return { x, neurons };
}

/** Matrix rows of the listed neurons, in place or in shuffled slots; all other rows hold NaN, which must stay unread. */
function rowsFor(
  bench: Workbench,
  { type, width }: SparseShape,
  neurons: readonly number[],
  rowLength: number,
): { matrix: Pick<ActiveInputsOp['matrix'], 'span' | 'type' | 'rowStride'>; slots: ActiveInputsOp['slots'] } {
  const { random } = bench;
  const rowStride = rowLength + random.pick([0, 0, 1, 8]);
  const inSlots = random.chance(0.5);
  const count = inSlots ? neurons.length + random.below(3) : width;
  const elements = count * rowStride;
  const halves = new Uint16Array(elements).fill(type === 'f16' ? 0x7e00 : 0x7fc0);
  const bytes = new Uint8Array(
    type === 'f32' ? new Float32Array(elements).fill(Number.NaN).buffer : halves.buffer,
  );
  const places = inSlots ? shuffled(random, count).slice(0, neurons.length) : neurons;
  const rowBytes = (rowStride * bytes.byteLength) / Math.max(elements, 1);
  for (const place of places) {
    const row = random.weights(type, rowLength, random.pick(['plain', 'edges']));
    bytes.set(row, place * rowBytes);
  }
  const span = bench.stored('matrix', type, bytes);
  return {
    matrix: { span, type, rowStride },
    slots: inSlots ? bench.integers('slots', places) : null,
  };
}

function shuffled(random: CaseRandom, count: number): number[] {
  const order = Array.from({ length: count }, (_, index) => index);
  for (let last = count - 1; last > 0; last--) {
    const other = random.below(last + 1);
    [order[last], order[other]] = [order[other]!, order[last]!];
  }
  return order;
}

function activeInputsCase(shape: SparseShape): ContractCase {
  return { name: describe(shape), build: (bench) => activeInputsOps(bench, shape) };
}

function activeInputsOps(bench: Workbench, shape: SparseShape): Op[] {
  const { random } = bench;
  const { rows, width, other: outputs } = shape;
  const compacts = random.chance(0.5); // then x is dense, as compact takes it
  const xStride = compacts ? width : width + random.below(5);
  const { x: values, neurons } = activations(random, shape, xStride);
  const x = bench.floats('x', values);
  const active = bench.active('active', width, compacts ? null : neurons);
  const { matrix, slots } = rowsFor(bench, shape, neurons, outputs);
  const out = bench.room('out', rows * outputs);
  const bias = random.chance(0.5) ? bench.floats('bias', random.floats(outputs, 'plain')) : null;
  const residual = random.chance(0.5)
    ? bench.floats('residual', random.floats(rows * outputs, 'plain'))
    : null;
  const part = (listBegin: number, listEnd: number, last: boolean): ActiveInputsOp => ({
    kind: 'active-inputs',
    rows,
    x,
    xStride,
    active,
    listBegin,
    listEnd,
    slots,
    outputs,
    matrix: { ...matrix, layout: 'input-major' },
    out,
    continues: listBegin > 0,
    bias: last ? bias : null,
    residual: last ? residual : null,
  });
  const ops: Op[] = compacts ? [{ kind: 'compact', rows, width, x, active }] : [];
  // A cut lies where the block of 128 neurons changes.
  const cuts = neurons.flatMap((neuron, position) =>
    position > 0 && Math.floor(neuron / 128) !== Math.floor(neurons[position - 1]! / 128) ? [position] : [],
  );
  if (cuts.length === 0 || random.chance(0.3)) return [...ops, part(0, -1, true)];
  const cut = random.pick(cuts);
  return [...ops, part(0, cut, false), part(cut, random.chance(0.5) ? -1 : neurons.length, true)];
}

function activeOutputsCase(shape: SparseShape): ContractCase {
  return { name: describe(shape), build: (bench) => activeOutputsOps(bench, shape) };
}

function activeOutputsOps(bench: Workbench, shape: SparseShape): Op[] {
  const { random } = bench;
  const { rows, width, other: inputs } = shape;
  const { neurons } = activations(random, shape, width);
  const { matrix, slots } = rowsFor(bench, shape, neurons, inputs);
  const outStride = width + random.below(4);
  const cut = random.below(neurons.length + 1);
  const common = {
    kind: 'active-outputs',
    rows,
    x: bench.floats('x', random.floats(rows * inputs, random.pick(['plain', 'sparse', 'edges']))),
    inputs,
    active: bench.active('active', width, neurons),
    slots,
    matrix: { ...matrix, layout: 'output-major' },
    out: bench.room('out', rows * outStride),
    outStride,
    bias: random.chance(0.5) ? bench.floats('bias', random.floats(width, 'plain')) : null,
  } as const;
  if (random.chance(0.5)) return [{ ...common, listBegin: 0, listEnd: -1 }];
  return [
    { ...common, listBegin: 0, listEnd: cut },
    { ...common, listBegin: cut, listEnd: -1 },
  ];
}
