import type { Op } from '../../../src/backend/ops.js';
import { narrowBf16 } from '../../../src/base/half.js';
import { type QuantisedType, quantisedLayout, quantisedTypes } from '../../../src/base/quantised-type.js';
import { type CaseGroup, type ContractCase, oddSizes, rowCounts } from './case.js';
import { type Flavor, finiteFlavors } from './case-random.js';
import type { Workbench } from './workbench.js';

interface QuantisedShape {
  readonly type: QuantisedType;
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
  readonly flavor: Flavor;
}

export function quantisedGroups(): CaseGroup[] {
  return quantisedTypes.map((type) => ({
    name: `quantised-linear, ${type}`,
    cases: shapes(type).map(quantisedCase),
  }));
}

function shapes(type: QuantisedType): QuantisedShape[] {
  const shape = (rows: number, inputs: number, outputs: number, flavor: Flavor): QuantisedShape => ({
    type,
    rows,
    inputs,
    outputs,
    flavor,
  });
  const flavorOf = (index: number): Flavor => finiteFlavors[index % finiteFlavors.length]!;
  return [
    ...oddSizes.map((inputs, index) => shape(1 + (index % 3), inputs, 37, flavorOf(index))),
    ...oddSizes.map((outputs, index) => shape(1 + (index % 2), 131, outputs, flavorOf(index + 1))),
    ...rowCounts.map((rows, index) => shape(rows, 160, 68, flavorOf(index))),
    ...rowCounts.map((rows) => shape(rows, 140, 33, 'non-finite')),
    shape(1, 1000, 1004, 'plain'),
    shape(1, 2600, 64, 'plain'),
    shape(2, 1003, 516, 'edges'),
    shape(8, 515, 300, 'plain'),
    shape(1, 257, 4300, 'sparse'),
    // On a GPU: wider tiles, several of them, several turns of a warp, and blocks of inputs in rounds.
    shape(1, 300, 7900, 'plain'),
    shape(3, 270, 10_240, 'edges'),
    shape(1, 5500, 64, 'plain'),
    shape(4, 10_300, 24, 'plain'),
  ];
}

function quantisedCase(shape: QuantisedShape): ContractCase {
  const { rows, inputs, outputs, flavor } = shape;
  return {
    name: `${rows} rows, ${inputs} inputs, ${outputs} outputs, ${flavor}`,
    build: (bench) => quantisedOps(bench, shape),
  };
}

/** Codes are any bits, those behind the last input too; scales are +0, subnormal, plain, or as large as they may be. */
function quantisedOps(bench: Workbench, { type, rows, inputs, outputs, flavor }: QuantisedShape): Op[] {
  const { random } = bench;
  const { codeBytes, groups } = quantisedLayout(type, inputs, outputs);
  const x = bench.floats('x', random.floats(rows * inputs, flavor));
  const codes = bench.integers('codes', [...new Int32Array(random.bytes(codeBytes).slice().buffer)]);
  const scales = Uint16Array.from({ length: groups * outputs }, () => scaleBits(random.word()));
  return [
    {
      kind: 'quantised-linear',
      rows,
      x,
      inputs,
      outputs,
      type,
      codes,
      scales: bench.stored('scales', 'bf16', new Uint8Array(scales.buffer)),
      out: bench.room('out', rows * outputs),
      bias: random.chance(0.5) ? bench.floats('bias', random.floats(outputs, flavor)) : null,
      residual: random.chance(0.5) ? bench.floats('residual', random.floats(rows * outputs, flavor)) : null,
    },
  ];
}

function scaleBits(word: number): number {
  const fraction = 1 + (word & 0x7f) / 128;
  if (word % 41 === 0) return 0;
  if (word % 37 === 0) return word & 0x7f; // subnormal
  if (word % 31 === 0) return narrowBf16(2 ** 100);
  return narrowBf16(fraction * 2 ** -((word >>> 8) % 20));
}
