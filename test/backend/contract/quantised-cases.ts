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
  /** Of further products of the same inputs, which may share a launch. */
  readonly others: readonly number[];
  readonly flavor: Flavor;
}

export function quantisedGroups(): CaseGroup[] {
  return quantisedTypes.map((type) => ({
    name: `quantised-linear, ${type}`,
    cases: shapes(type).map(quantisedCase),
  }));
}

function shapes(type: QuantisedType): QuantisedShape[] {
  const shape = (
    rows: number,
    inputs: number,
    outputs: number,
    flavor: Flavor,
    ...others: number[]
  ): QuantisedShape => ({ type, rows, inputs, outputs, others, flavor });
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
    // On a GPU: single columns a lane and pairs, several turns of a warp, and blocks of inputs in rounds.
    shape(1, 300, 7900, 'plain'),
    shape(3, 270, 10_240, 'edges'),
    shape(1, 1290, 10_244, 'plain'),
    shape(1, 5500, 64, 'plain'),
    shape(4, 10_300, 24, 'plain'),
    shape(1, 21_000, 24, 'plain'),
    // Three of one x, whose columns meet in one block of threads, and such as cannot share words of 16 bytes.
    shape(1, 700, 300, 'plain', 76, 68),
    shape(3, 515, 1204, 'edges', 404, 400),
    shape(2, 260, 4300, 'sparse', 8, 4),
    shape(1, 131, 37, 'plain', 41, 36),
    ...rowCounts.map((rows) => shape(rows, 160, 72, 'plain', 36, 40)),
  ];
}

function quantisedCase(shape: QuantisedShape): ContractCase {
  const { rows, inputs, outputs, others, flavor } = shape;
  return {
    name: `${rows} rows, ${inputs} inputs, ${[outputs, ...others].join(' and ')} outputs, ${flavor}`,
    build: (bench) => quantisedOps(bench, shape),
  };
}

/** Codes are any bits, those behind the last input too; scales are +0, subnormal, plain, or as large as they may be. */
function quantisedOps(bench: Workbench, shape: QuantisedShape): Op[] {
  const { type, rows, inputs, outputs, others, flavor } = shape;
  const { random } = bench;
  const x = bench.floats('x', random.floats(rows * inputs, flavor));
  return [outputs, ...others].map((count, which) => {
    const { codeBytes, groups } = quantisedLayout(type, inputs, count);
    const codes = bench.integers('codes', [...new Int32Array(random.bytes(codeBytes).slice().buffer)]);
    const scales = Uint16Array.from({ length: groups * count }, () => scaleBits(random.word()));
    const withResidual = which === 0 && random.chance(0.5);
    return {
      kind: 'quantised-linear',
      rows,
      x,
      inputs,
      outputs: count,
      type,
      codes,
      scales: bench.stored('scales', 'bf16', new Uint8Array(scales.buffer)),
      out: bench.room('out', rows * count),
      bias: random.chance(0.5) ? bench.floats('bias', random.floats(count, flavor)) : null,
      residual: withResidual ? bench.floats('residual', random.floats(rows * count, flavor)) : null,
    };
  });
}

function scaleBits(word: number): number {
  const fraction = 1 + (word & 0x7f) / 128;
  if (word % 41 === 0) return 0;
  if (word % 37 === 0) return word & 0x7f; // subnormal
  if (word % 31 === 0) return narrowBf16(2 ** 100);
  return narrowBf16(fraction * 2 ** -((word >>> 8) % 20));
}
