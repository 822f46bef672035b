import type { LinearOp, Op } from '../../../src/backend/ops.js';
import { type StoredType, storedBytes } from '../../../src/base/stored-type.js';
import { subspan } from '../../../src/memory/buffers.js';
import { type CaseGroup, type ContractCase, layouts, oddSizes, rowCounts, storedTypes } from './case.js';
import { type Flavor, finiteFlavors } from './case-random.js';
import type { Workbench } from './workbench.js';

interface LinearShape {
  readonly type: StoredType;
  readonly layout: LinearOp['matrix']['layout'];
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
  readonly flavor: Flavor;
}

export function linearGroups(): CaseGroup[] {
  return storedTypes.flatMap((type) =>
    layouts.map((layout) => ({
      name: `linear, ${type}, ${layout}`,
      cases: shapes(type, layout).map(linearCase),
    })),
  );
}

function shapes(type: StoredType, layout: LinearShape['layout']): LinearShape[] {
  const shape = (rows: number, inputs: number, outputs: number, flavor: Flavor): LinearShape => ({
    type,
    layout,
    rows,
    inputs,
    outputs,
    flavor,
  });
  const flavorOf = (index: number): Flavor => finiteFlavors[index % finiteFlavors.length]!;
  return [
    ...oddSizes.map((inputs, index) => shape(1 + (index % 3), inputs, 37, flavorOf(index))),
    ...oddSizes.map((outputs, index) => shape(1 + (index % 4), 131, outputs, flavorOf(index + 2))),
    ...rowCounts.map((rows, index) => shape(rows, 129, 70, flavorOf(index))),
    ...rowCounts.map((rows) => shape(rows, 200, 19, 'plain')),
    ...rowCounts.map((rows) => shape(rows, 140, 33, 'non-finite')),
    shape(1, 1000, 1003, 'plain'),
    shape(2, 1003, 515, 'edges'),
    shape(33, 515, 301, 'plain'),
    shape(3, 260, 40, 'zero'),
    shape(130, 257, 129, 'wide'),
    // Around tiles of 32, 64 and 128 rows by 32 to 160 columns.
    shape(31, 144, 32, 'plain'),
    shape(32, 130, 33, 'edges'),
    shape(64, 260, 80, 'plain'),
    shape(65, 17, 81, 'wide'),
    shape(128, 129, 160, 'plain'),
    shape(129, 133, 161, 'plain'),
    shape(257, 131, 90, 'plain'),
  ];
}

function linearCase(shape: LinearShape): ContractCase {
  const { rows, inputs, outputs, flavor } = shape;
  return {
    name: `${rows} rows, ${inputs} inputs, ${outputs} outputs, ${flavor}`,
    build: (bench) => linearOps(bench, shape),
  };
}

function linearOps(bench: Workbench, { type, layout, rows, inputs, outputs, flavor }: LinearShape): Op[] {
  const { random } = bench;
  const xStride = inputs + random.pick([0, 0, 1, 3, 16]);
  const outOffset = random.pick([0, 0, 1, 5, 16]);
  const outStride = outOffset + outputs + random.pick([0, 0, 2, 7]);
  const [stored, width] = layout === 'input-major' ? [inputs, outputs] : [outputs, inputs];
  const rowStride = width + random.pick([0, 0, 1, 8]);
  const x = bench.floats('x', random.floats(rows * xStride, flavor));
  const weights = bench.stored('weights', type, random.weights(type, stored * rowStride, flavor));
  const out = bench.room('out', rows * outStride);
  const bias = random.chance(0.5) ? bench.floats('bias', random.floats(outputs, flavor)) : null;
  const residual = random.chance(0.5)
    ? bench.floats('residual', random.floats(rows * outStride, flavor))
    : null;
  const part = (inputBegin: number, inputEnd: number): LinearOp => {
    const skipped = (layout === 'input-major' ? inputBegin * rowStride : inputBegin) * storedBytes[type];
    const last = inputEnd === inputs;
    return {
      kind: 'linear',
      rows,
      x,
      xStride,
      inputBegin,
      inputEnd,
      outputs,
      matrix: { span: subspan(weights, skipped, weights.byteLength - skipped), type, layout, rowStride },
      out,
      outStride,
      outOffset,
      continues: inputBegin > 0,
      bias: last ? bias : null,
      residual: last ? residual : null,
    };
  };
  if (inputs <= 128 || random.chance(0.5)) return [part(0, inputs)];
  const cut = 128 * (1 + random.below(Math.ceil(inputs / 128) - 1));
  return [part(0, cut), part(cut, inputs)];
}
