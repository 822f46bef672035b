import type { Op } from '../../../src/backend/ops.js';
import { storedBytes } from '../../../src/base/stored-type.js';
import { type ActivationKind, activationKinds } from '../../../src/checkpoint/model-config.js';
import { type CaseGroup, type ContractCase, oddSizes, rowCounts, storedTypes } from './case.js';
import type { Flavor } from './case-random.js';
import type { Workbench } from './workbench.js';

const flavors: Flavor[] = ['plain', 'sparse', 'tiny', 'wide', 'edges', 'non-finite'];

export function elementwiseGroups(): CaseGroup[] {
  return [
    ...activationKinds.map((kind) => ({ name: `activate, ${kind}`, cases: activationCases(kind) })),
    {
      name: 'gated-product',
      cases: oddSizes.flatMap((count) => flavors.map((flavor) => gatedCase(count, flavor))),
    },
    { name: 'add', cases: oddSizes.map(addCase) },
    { name: 'norm', cases: [...normCases('layer'), ...normCases('rms')] },
    { name: 'rope', cases: rowCounts.flatMap((rows) => [ropeCase(rows, 8), ropeCase(rows, 34)]) },
    ...storedTypes.map((type) => ({
      name: `gather, ${type}`,
      cases: oddSizes.map(
        (columns, index): ContractCase => ({
          name: `${columns} columns`,
          build: (bench) => [gatherOp(bench, type, rowCounts[index % rowCounts.length]!, columns)],
        }),
      ),
    })),
  ];
}

function activationCases(kind: ActivationKind): ContractCase[] {
  const one = (count: number, flavor: Flavor | 'any' | 'range'): ContractCase => ({
    name: `${count} values, ${flavor}`,
    build: (bench) => {
      const { random } = bench;
      const values =
        flavor === 'any'
          ? random.anyFloats(count)
          : flavor === 'range'
            ? new Float32Array(count).map(() => 220 * random.uniform() - 110)
            : random.floats(count, flavor);
      const threshold = random.pick([0, 0.01, 0.1, -0.25]);
      return [{ kind: 'activate', count, activation: kind, threshold, x: bench.floats('x', values) }];
    },
  });
  return [
    ...oddSizes.map((count, index) => one(count, flavors[index % flavors.length]!)),
    one(20011, 'any'),
    one(20011, 'range'),
    one(5003, 'plain'),
    one(5003, 'edges'),
  ];
}

function gatedCase(count: number, flavor: Flavor): ContractCase {
  return {
    name: `${count} values, ${flavor}`,
    build: (bench) => {
      const { random } = bench;
      // Where the gate is zero the other factor may never have been computed.
      const gate = random
        .floats(count, flavor)
        .map((value) => (random.chance(0.3) ? random.value('zero') : value));
      const up = random.floats(count, flavor).map((value, index) => (gate[index] === 0 ? Number.NaN : value));
      return [{ kind: 'gated-product', count, gate: bench.floats('gate', gate), up: bench.floats('up', up) }];
    },
  };
}

function addCase(count: number): ContractCase {
  return {
    name: `${count} values`,
    build: (bench) => {
      const { random } = bench;
      const flavor = random.pick(flavors);
      const a = bench.floats('a', random.floats(count, flavor));
      const b = bench.floats('b', random.floats(count, flavor));
      return [{ kind: 'add', count, a, b, out: random.pick([a, b, bench.room('out', count)]) }];
    },
  };
}

function normCases(norm: 'layer' | 'rms'): ContractCase[] {
  const one = (rows: number, width: number, flavor: Flavor): ContractCase => ({
    name: `${norm}, ${rows} rows, ${width} wide, ${flavor}`,
    build: (bench) => {
      const { random } = bench;
      const x = bench.floats('x', random.floats(rows * width, flavor));
      const out = random.chance(0.3) ? x : bench.room('out', rows * width);
      const gamma = random.chance(0.7) ? bench.floats('gamma', random.floats(width, 'plain')) : null;
      const beta =
        norm === 'layer' && random.chance(0.7) ? bench.floats('beta', random.floats(width, 'plain')) : null;
      const epsilon = random.pick([1e-5, 1e-6, 1e-12]);
      return [{ kind: 'norm', norm, rows, width, epsilon, x, gamma, beta, out }];
    },
  });
  return [
    ...[...oddSizes, 512, 1000, 1027].map((width, index) =>
      one(1 + (index % 3), width, flavors[index % flavors.length]!),
    ),
    ...rowCounts.map((rows) => one(rows, 130, 'plain')),
  ];
}

function ropeCase(rows: number, rotary: number): ContractCase {
  return {
    name: `${rows} rows, ${rotary} rotated`,
    build: (bench) => {
      const { random } = bench;
      const heads = 1 + random.below(5);
      const headDim = rotary + random.pick([0, 0, 1, 6]);
      const tableRows = 20;
      const half = rotary / 2;
      const flavor = random.pick(flavors);
      return [
        {
          kind: 'rope',
          rows,
          heads,
          headDim,
          rotary,
          positions: bench.integers(
            'positions',
            Array.from({ length: rows }, () => [random.below(3), random.below(tableRows)]).flat(),
          ),
          cosines: bench.floats('cosines', random.floats(tableRows * half, 'plain')),
          sines: bench.floats('sines', random.floats(tableRows * half, 'plain')),
          x: bench.floats('x', random.floats(rows * heads * headDim, flavor)),
        },
      ];
    },
  };
}

function gatherOp(bench: Workbench, type: 'f32' | 'f16' | 'bf16', rows: number, columns: number): Op {
  const { random } = bench;
  const tableRows = 1 + random.below(40);
  // Either rows as they lie, or columns of a transposed table.
  const transposed = random.chance(0.3);
  const pad = random.pick([0, 0, 1, 3]);
  const rowStride = transposed ? 1 : columns + pad;
  const columnStride = transposed ? tableRows + pad : 1;
  const elements = transposed ? columns * columnStride : tableRows * rowStride;
  const encodings =
    type === 'f32'
      ? new Uint8Array(random.anyFloats(elements).buffer)
      : random.bytes(elements * storedBytes[type]);
  return {
    kind: 'gather',
    rows,
    columns,
    table: bench.stored('table', type, encodings),
    tableRows,
    type,
    rowStride,
    columnStride,
    ids: bench.integers(
      'ids',
      Array.from({ length: rows }, () => random.below(tableRows)),
    ),
    out: bench.room('out', rows * columns),
  };
}
