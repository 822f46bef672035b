import type { ActivateOp, LinearOp, Matrix, NormOp, Op } from '../../../src/backend/ops.js';
import { type StoredType, storedBytes } from '../../../src/base/stored-type.js';
import { type Span, subspan } from '../../../src/memory/buffers.js';
import { type CaseGroup, type ContractCase, storedTypes } from './case.js';
import type { Workbench } from './workbench.js';

/**
 * Products as models ask for them: rows of weights at multiples of 16 bytes, a norm in front, three of one input with the
 * store of keys and values behind, an activation behind, a whole active set. Backends have ways of their own for these.
 */
export function alignedGroups(): CaseGroup[] {
  const prompts = storedTypes.map((type) => ({
    name: `products of prompts, ${type}`,
    cases: [productCase(type, 70, 136, 88, false), productCase(type, 130, 264, 168, true)],
  }));
  const passes = storedTypes.map((type) => ({
    name: `products as models ask for them, ${type}`,
    cases: [
      ...[1, 2, 3, 4, 5, 8].flatMap((rows) => [
        productCase(type, rows, 640, 96, false),
        productCase(type, rows, 1000, 80, true),
        activeCase(type, rows, 1000, 72, 0.1),
        splitCase(type, rows, 1411, 330, 76 + 8 * rows),
        // Whichever half is longer, it has enough blocks for clusters to share.
        splitCase(type, rows, 9100, 72, 37),
      ]),
      ...[1, 2].flatMap((rows) => [
        productCase(type, rows, 129, 8, true),
        productCase(type, rows, 2560, 264, true),
        headsCase(type, rows, 256, 'f16'),
        headsCase(type, rows, 300, 'f32'),
      ]),
      productCase(type, 1, 10_240, 40, false),
      activeCase(type, 1, 10_240, 136, 0.034),
      activeCase(type, 2, 2052, 24, 1),
      activeCase(type, 4, 300, 8, 0),
    ],
  }));
  return [...passes, ...prompts];
}

/** Ends with the last weight that is read; rows may be longer than they need to be. */
function matrixOf(bench: Workbench, type: StoredType, inputs: number, outputs: number, spare = 0): Matrix {
  const lane = 16 / storedBytes[type];
  const rowStride = (Math.ceil(outputs / lane) + spare) * lane;
  const count = (inputs - 1) * rowStride + outputs;
  const bytes = bench.random.weights(type, count, 'plain');
  return { span: bench.storedAligned('weights', type, bytes), type, layout: 'input-major', rowStride };
}

function productOf(bench: Workbench, rows: number, x: Span, inputs: number, matrix: Matrix, outputs: number) {
  const { random } = bench;
  const floats = (label: string, count: number) =>
    random.chance(0.7) ? bench.floats(label, random.floats(count, 'plain')) : null;
  return {
    kind: 'linear',
    rows,
    x,
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix,
    out: bench.room('out', rows * outputs),
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: floats('bias', outputs),
    residual: null,
  } satisfies LinearOp;
}

function normOf(bench: Workbench, rows: number, width: number): NormOp {
  const { random } = bench;
  const vector = (label: string) => bench.floats(label, random.floats(width, 'plain'));
  return {
    kind: 'norm',
    norm: random.pick(['layer', 'rms']),
    rows,
    width,
    epsilon: 1e-5,
    x: bench.floats('stream', random.floats(rows * width, 'plain')),
    gamma: random.chance(0.8) ? vector('gamma') : null,
    beta: random.chance(0.5) ? vector('beta') : null,
    out: bench.room('normed', rows * width),
  };
}

function productCase(
  type: StoredType,
  rows: number,
  inputs: number,
  outputs: number,
  normed: boolean,
): ContractCase {
  return {
    name: `${rows} rows, ${inputs} inputs, ${outputs} outputs${normed ? ', behind a norm' : ''}`,
    build: (bench) => {
      const { random } = bench;
      const norm = normed ? [normOf(bench, rows, inputs)] : [];
      const x = norm[0]?.out ?? bench.floats('x', random.floats(rows * inputs, 'plain'));
      const matrix = matrixOf(bench, type, inputs, outputs, random.below(2));
      const residual = random.chance(0.5)
        ? bench.floats('residual', random.floats(rows * outputs, 'plain'))
        : null;
      const product = { ...productOf(bench, rows, x, inputs, matrix, outputs), residual };
      const activation = random.pick(['relu', 'relu2', 'fatrelu', 'silu'] as const);
      const activate: ActivateOp = {
        kind: 'activate',
        count: rows * outputs,
        activation,
        threshold: 0.25,
        x: product.out,
      };
      return [...norm, product, ...(random.chance(0.5) ? [activate] : [])];
    },
  };
}

/** A product in two, at a cut that is any multiple of 128; the second half begins from the first one's sums. */
function splitCase(
  type: StoredType,
  rows: number,
  inputs: number,
  outputs: number,
  narrow: number,
): ContractCase {
  return {
    name: `${rows} rows, ${inputs} inputs in two parts, ${outputs} and ${narrow} outputs`,
    build: (bench) => {
      const { random } = bench;
      const x = bench.floats('x', random.floats(rows * inputs, 'plain'));
      return [outputs, narrow].flatMap((count): Op[] => {
        const matrix = matrixOf(bench, type, inputs, count);
        const whole = productOf(bench, rows, x, inputs, matrix, count);
        const residual = bench.floats('residual', random.floats(rows * count, 'plain'));
        const cut = 128 * (1 + random.below(Math.ceil(inputs / 128) - 1));
        const skipped = cut * matrix.rowStride * storedBytes[type];
        const { span } = matrix;
        const rest = { ...matrix, span: subspan(span, skipped, span.byteLength - skipped) };
        return [
          { ...whole, inputEnd: cut, bias: null },
          { ...whole, inputBegin: cut, matrix: rest, continues: true, residual },
        ];
      });
    },
  };
}

function headsCase(type: StoredType, rows: number, inputs: number, kv: 'f16' | 'f32'): ContractCase {
  return {
    name: `${rows} rows, query, key and value of ${inputs} inputs, stored as ${kv}`,
    build: (bench) => {
      const { random } = bench;
      const [kvHeads, headDim, slots, capacity] = [3, 16, 2, 5];
      const width = kvHeads * headDim;
      const norm = normOf(bench, rows, inputs);
      const products = ['query', 'key', 'value'].map(() =>
        productOf(bench, rows, norm.out, inputs, matrixOf(bench, type, inputs, width), width),
      );
      const positions = Array.from({ length: rows }, (_, row) => [row % slots, random.below(capacity)]);
      const cacheBytes = slots * capacity * width * (kv === 'f16' ? 2 : 4);
      const store: Op = {
        kind: 'store-kv',
        rows,
        positions: bench.integers('positions', positions.flat()),
        keys: products[1]!.out,
        values: products[2]!.out,
        cache: {
          type: kv,
          keys: bench.cache('keys', kv, random.bytes(cacheBytes)),
          values: bench.cache('values', kv, random.bytes(cacheBytes)),
          slots,
          kvHeads,
          headDim,
          capacity,
        },
      };
      return [norm, ...products, store];
    },
  };
}

function activeCase(
  type: StoredType,
  rows: number,
  width: number,
  outputs: number,
  share: number,
): ContractCase {
  return {
    name: `${rows} rows, ${share} of ${width} neurons active, ${outputs} outputs`,
    build: (bench) => {
      const { random } = bench;
      const values = random.floats(rows * width, 'plain').map((value) => (random.chance(share) ? value : 0));
      const x = bench.floats('x', values);
      const active = bench.active('active', width, null);
      return [
        { kind: 'compact', rows, width, x, active },
        {
          kind: 'active-inputs',
          rows,
          x,
          xStride: width,
          active,
          listBegin: 0,
          listEnd: -1,
          slots: null,
          outputs,
          matrix: matrixOf(bench, type, width, outputs, random.below(2)),
          out: bench.room('out', rows * outputs),
          continues: false,
          bias: random.chance(0.5) ? bench.floats('bias', random.floats(outputs, 'plain')) : null,
          residual: random.chance(0.5)
            ? bench.floats('residual', random.floats(rows * outputs, 'plain'))
            : null,
        },
      ];
    },
  };
}
