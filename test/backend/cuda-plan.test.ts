import { describe, expect, it } from 'vitest';
import type { KernelVariants } from '../../src/backend/cuda/launch.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import { streamShape } from '../../src/backend/cuda/stream-shape.js';
import type {
  ActiveInputsOp,
  AttentionOp,
  CompactOp,
  LinearOp,
  LowBitCopy,
  NormOp,
  Op,
  PlacedOp,
} from '../../src/backend/ops.js';
import { lowBitFormats } from '../../src/checkpoint/low-bit.js';
import { lowBitLayout, roundedInputLayout } from '../../src/checkpoint/low-bit-layout.js';
import type { Span } from '../../src/memory/buffers.js';
import { cudaContractGroups, cudaFacts, oldestFacts, planCases } from './cuda-support.js';

let nextAddress = 1 << 20;
function span(byteLength: number): Span {
  const buffer = { label: 'test', cause: 'workspace', address: nextAddress, byteLength } as const;
  nextAddress += Math.ceil(byteLength / 256) * 256;
  return { buffer, byteOffset: 0, byteLength };
}

const hidden = 2560;
const ffn = 10_240;

function linear(x: Span, inputs: number, outputs: number, more: Partial<LinearOp> = {}): LinearOp {
  return {
    kind: 'linear',
    rows: 1,
    x,
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix: { span: span(inputs * outputs * 2), type: 'f16', layout: 'input-major', rowStride: outputs },
    out: span(outputs * 4),
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: span(outputs * 4),
    residual: null,
    ...more,
  };
}

/** A decode layer of OPT-2.7B as the model emits it. */
function layer(): Op[] {
  const [stream, next, x, active] = [span(hidden * 4), span(hidden * 4), span(hidden * 4), span(ffn * 4)];
  const positions = span(8);
  const cache = {
    type: 'f16',
    keys: span(hidden * 640 * 2),
    values: span(hidden * 640 * 2),
    slots: 1,
    kvHeads: 32,
    headDim: 80,
    capacity: 640,
  } as const;
  const norm = (from: Span): Op => ({
    kind: 'norm',
    norm: 'layer',
    rows: 1,
    width: hidden,
    epsilon: 1e-5,
    x: from,
    gamma: span(hidden * 4),
    beta: span(hidden * 4),
    out: x,
  });
  const [query, keys, values] = [0, 1, 2].map(() => linear(x, hidden, hidden));
  const attended = span(hidden * 4);
  const set = span((ffn + 1) * 4);
  return [
    norm(stream),
    query!,
    keys!,
    values!,
    { kind: 'store-kv', rows: 1, positions, keys: keys!.out, values: values!.out, cache },
    {
      kind: 'attention',
      rows: 1,
      heads: 32,
      positions,
      scale: 0.1,
      query: query!.out,
      cache,
      scratch: span(4),
      out: attended,
    },
    linear(attended, hidden, hidden, { out: next, residual: stream }),
    norm(next),
    linear(x, hidden, ffn, { out: active }),
    { kind: 'activate', count: ffn, activation: 'relu', threshold: 0, x: active },
    { kind: 'compact', rows: 1, width: ffn, x: active, active: set },
    {
      kind: 'active-inputs',
      rows: 1,
      x: active,
      xStride: ffn,
      active: set,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      outputs: hidden,
      matrix: { span: span(ffn * hidden * 2), type: 'f16', layout: 'input-major', rowStride: hidden },
      out: stream,
      continues: false,
      bias: span(hidden * 4),
      residual: next,
    },
  ];
}

const placed = (ops: readonly Op[]): PlacedOp[] => ops.map((op, index) => ({ op, label: `op ${index}` }));

describe('launches of the CUDA backend', () => {
  it('a decode layer is five launches, and each reports errors under its own op', () => {
    const launches = planLaunches(placed(layer()), cudaFacts);
    expect(launches.map(({ kernel }) => kernel)).toEqual([
      'linear_stream_f16_r1_16x2',
      'attention_cluster_f16',
      'linear_stream_f16_r1_16x2',
      'linear_stream_f16_r1_16x2',
      'active_direct_f16_r1_16B',
    ]);
    expect(launches[0]!.grid).toEqual([80, 3, 1]);
    expect(launches[0]!.values).toMatchObject({ norm: 0, store: 1, status: cudaFacts.statusAddress + 4 * 4 });
    expect(launches.map(({ cluster }) => cluster)).toEqual([1, 4, 1, 1, 1]);
    expect(launches[3]!.values).toMatchObject({ norm: 0, activation: 0, store: -1 });
    // One more block of threads than the columns need writes the active set.
    expect(launches[4]!.grid).toEqual([41, 1, 1]);
    // Every row of the second projection: 40 groups of 64 columns, 16 of 80 blocks of inputs each of a cluster.
    const [second] = planLaunches(placed([linear(span(ffn * 4), ffn, hidden)]), cudaFacts);
    expect(second!).toMatchObject({ kernel: 'linear_stream_f16_r1_16x4', grid: [200, 1, 1], cluster: 5 });
    expect(second!.values).toMatchObject({
      ranks: 5,
      share: 13,
      blocksPerRound: 16,
      rounds: 1,
      prefetchBytes: 0,
    });
    const [oldest] = planLaunches(placed([linear(span(ffn * 4), ffn, hidden)]), oldestFacts);
    expect(oldest!).toMatchObject({ cluster: 1, values: { ranks: 1 } });
  });

  it('a decode layer with certificates is five launches, or six where directions need the input first', () => {
    const plain = layer();
    const [x, marks] = [span(hidden * 4), span(ffn * 4)];
    const product = plain[8] as LinearOp;
    const copy: LowBitCopy = {
      span: span(lowBitLayout(lowBitFormats.int8, hidden, ffn, 0).byteLength),
      format: lowBitFormats.int8,
      inputs: hidden,
      outputs: ffn,
      directions: 0,
      directionExponent: 0,
    };
    const rounded = span(roundedInputLayout(1, hidden, 0).byteLength);
    const active = span((ffn + 1) * 4);
    const bias = product.bias;
    const ops: Op[] = [
      ...plain.slice(0, 7),
      { ...(plain[7] as NormOp), out: x },
      { kind: 'round-input', rows: 1, x, copy, out: rounded },
      { kind: 'certify', rows: 1, copy, input: rounded, bias, threshold: 0, out: marks },
      { kind: 'compact', rows: 1, width: ffn, x: marks, active },
      {
        kind: 'active-outputs',
        rows: 1,
        x,
        inputs: hidden,
        active,
        listBegin: 0,
        listEnd: -1,
        slots: null,
        matrix: { ...product.matrix, layout: 'output-major', rowStride: hidden },
        out: marks,
        outStride: ffn,
        bias,
      },
      { kind: 'activate', count: ffn, activation: 'relu', threshold: 0, x: marks },
      { ...(plain[10] as CompactOp), x: marks },
      { ...(plain[11] as ActiveInputsOp), x: marks },
    ];
    const launches = planLaunches(placed(ops), cudaFacts);
    expect(launches.slice(3).map(({ kernel }) => kernel)).toEqual([
      'certify_normed_int8_u5',
      'active_direct_f16_r1_16B',
    ]);
    expect(launches[3]!).toMatchObject({ grid: [132, 1, 1], threads: 544 });
    expect(launches[3]!.values).toMatchObject({
      norm: 0,
      weights: 1,
      activation: 0,
      slots: 4,
      rowBlocks: 20,
    });
    // Two more blocks of threads than the columns need write the two sets.
    expect(launches[4]!.grid).toEqual([42, 1, 1]);
    expect(new Set(launches.map(({ overlapsPrevious }) => overlapsPrevious))).toEqual(new Set([true]));
    const shared = ops.map((op) =>
      op.kind === 'compact' || op.kind === 'active-inputs' ? { ...op, active } : op,
    );
    expect(planLaunches(placed(shared), cudaFacts)[4]!.values).toMatchObject({ flagged: 0 });
    const marksAlone = planLaunches(placed(ops.slice(0, 10)), cudaFacts).at(-1)!;
    expect(marksAlone).toMatchObject({ kernel: 'certify_normed_int8_u5', values: { weights: -1 } });

    const layout = { format: lowBitFormats.int8, inputs: hidden, outputs: ffn, directions: 16 };
    const directed = {
      ...copy,
      ...layout,
      span: span(lowBitLayout(lowBitFormats.int8, hidden, ffn, 16).byteLength),
    };
    const wider = span(roundedInputLayout(1, hidden, 16).byteLength);
    const others = ops.map((op): Op => {
      if (op.kind === 'round-input') return { ...op, copy: directed, out: wider };
      return op.kind === 'certify' ? { ...op, copy: directed, input: wider } : op;
    });
    const six = planLaunches(placed(others), cudaFacts);
    expect(six.slice(3).map(({ kernel }) => kernel)).toEqual([
      'round_input',
      'certify_int8_r1',
      'active_direct_f16_r1_16B',
    ]);
    expect(six[3]!.values).toMatchObject({ norm: 0 });
    expect(six[4]!).toMatchObject({ grid: [132, 1, 1], threads: 13 * 32 });
    expect(six[4]!.values).toMatchObject({ weights: 1, activation: 0, depth: 12, rowBlocks: 20 });
  });

  it('launches of a decode layer overlap where the device can', () => {
    const overlapping = (facts: typeof cudaFacts) =>
      planLaunches(placed(layer()), facts).map(({ overlapsPrevious }) => overlapsPrevious);
    expect(new Set(overlapping(cudaFacts))).toEqual(new Set([true]));
    expect(new Set(overlapping({ ...cudaFacts, overlaps: false }))).toEqual(new Set([false]));
  });

  it('plans the attention and tiles that a measurement asks for', () => {
    const attention = layer().find((op) => op.kind === 'attention') as AttentionOp;
    const plan = (op: Op, variants: KernelVariants) =>
      planLaunches(placed([op]), { ...cudaFacts, variants })[0]!;
    expect(plan(attention, { attention: '4x2' })).toMatchObject({ cluster: 4, threads: 256 });
    expect(plan(attention, { attention: 'tiles' }).kernel).toBe('attention_tiles_f16');
    expect(plan(attention, { attention: 'rows' }).kernel).toBe('attention_f16');
    for (const capacity of [1, 128, 640, 2176, 32_768]) {
      const { grid, cluster } = plan({ ...attention, cache: { ...attention.cache, capacity } }, {});
      expect(grid[0]).toBe(32 * cluster);
    }
    const product = linear(span(512 * hidden * 4), hidden, hidden, { rows: 512 });
    expect(plan(product, {}).grid).toEqual([32, 4, 1]); // 128 tiles for 132 multiprocessors
    expect(plan(product, { tile: '128x64_8x8' }).grid).toEqual([40, 4, 1]);
  });

  it('gives the same launches for the same ops, whatever positions the rows stand at', () => {
    const ops = placed(layer());
    expect(planLaunches(ops, cudaFacts)).toEqual(planLaunches(ops, cudaFacts));
  });

  it('fuses nothing that another op could tell apart', () => {
    const x = span(hidden * 4);
    const inPlace: Op = {
      kind: 'norm',
      norm: 'rms',
      rows: 1,
      width: hidden,
      epsilon: 1e-5,
      x,
      gamma: null,
      beta: null,
      out: x,
    };
    const kernels = (ops: Op[]) => planLaunches(placed(ops), cudaFacts).map(({ kernel }) => kernel);
    expect(kernels([inPlace, linear(x, hidden, 64)])[0]).toBe('norm_rows');
    const product = linear(x, hidden, 64);
    const half: Op = { kind: 'activate', count: 32, activation: 'relu', threshold: 0, x: product.out };
    expect(kernels([product, half])).toHaveLength(2);
    const smooth: Op = { kind: 'activate', count: 64, activation: 'silu', threshold: 0, x: product.out };
    expect(kernels([product, smooth])).toHaveLength(2);
    // The second product adds to what the first one writes.
    const chained = linear(x, hidden, 64, { out: product.out, residual: null, continues: false });
    expect(kernels([product, chained])).toHaveLength(2);
  });

  it.each([
    ['sm_90', cudaFacts],
    ['sm_75', oldestFacts],
  ] as const)(
    'stays inside the limits of %s for every case of the contract',
    (_, facts) => {
      const launches = planCases(cudaContractGroups(), facts);
      expect(launches.length).toBeGreaterThan(500);
      for (const { kernel, grid, threads, sharedBytes, cluster, values } of launches) {
        expect(threads % 32, kernel).toBe(0);
        expect(threads, kernel).toBeLessThanOrEqual(1024);
        expect(threads, kernel).toBeGreaterThan(0);
        expect(sharedBytes, kernel).toBeLessThanOrEqual(facts.sharedBytes);
        expect(grid[0] % cluster, kernel).toBe(0);
        expect(Math.min(...grid), kernel).toBeGreaterThan(0);
        expect(Math.max(grid[1], grid[2]), kernel).toBeLessThanOrEqual(65_535);
        for (const [name, value] of Object.entries(values)) {
          expect(Number.isFinite(value), `${kernel} ${name}`).toBe(true);
        }
      }
    },
    300_000,
  );

  it('ranks of a cluster share all blocks of inputs and end all columns, where there are clusters', () => {
    const clustered = new Set<number>();
    for (const inputs of [1, 128, 129, 640, 2560, 2600, 10_240, 28_672]) {
      for (const outputs of [8, 136, 2560, 2568, 7680, 50_272]) {
        for (const variant of [1, 2, 4, 8] as const) {
          for (const type of ['f16', 'f32'] as const) {
            for (const norm of [false, true]) {
              const request = { type, variant, inputs, outputs: [outputs], norm };
              const shape = streamShape(request, cudaFacts);
              expect(streamShape(request, oldestFacts)?.ranks ?? 1).toBe(1);
              if (shape === null) continue;
              const { ranks, share, columns, rounds, blocksPerRound, turnsOfRound, turnsOfTile } = shape;
              const name = `${inputs} x ${outputs}, ${variant} rows of ${type}${norm ? ' behind a norm' : ''}`;
              clustered.add(ranks);
              expect(ranks * rounds * blocksPerRound * 128, name).toBeGreaterThanOrEqual(inputs);
              expect(ranks === 1 || rounds === 1, name).toBe(true);
              expect(ranks * share, name).toBeGreaterThanOrEqual(columns);
              expect(ranks, name).toBeLessThanOrEqual(8);
              expect((shape.grid / ranks) * columns, name).toBeGreaterThanOrEqual(outputs);
              expect(shape.warps * turnsOfRound, name).toBeGreaterThanOrEqual(shape.tiles * turnsOfTile);
              expect(shape.sharedBytes, name).toBeLessThanOrEqual(cudaFacts.sharedBytes);
            }
          }
        }
      }
    }
    expect(clustered.size).toBeGreaterThan(1);
  });

  it('asks ahead for no byte beyond a matrix', () => {
    for (const { kernel, grid, values } of planLaunches(placed(layer()), cudaFacts)) {
      if (!kernel.startsWith('linear_stream')) continue;
      expect(values.prefetchBytes! * grid[0]).toBeLessThanOrEqual(values.inputs! * values.rowStride! * 2);
      expect(values.prefetchBytes! % 16).toBe(0);
    }
  });
});
