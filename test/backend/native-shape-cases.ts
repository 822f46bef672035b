import type { KvLayer } from '../../src/backend/ops.js';
import { activationKinds } from '../../src/checkpoint/model-config.js';
import type { Bench, Random } from './native-bench.js';

// The native library picks its kernels by rows, outputs and layout; these shapes lie on both sides of each of its
// choices. The contract suite covers the ops themselves.

/** An active set over `width` with about `share` of its neurons. */
function activeSet(random: Random, width: number, share: number): Uint32Array {
  const list = Array.from({ length: width }, (_, i) => i).filter(() => random.unit() < share);
  return Uint32Array.from({ length: width + 1 }, (_, i) => (i === 0 ? list.length : (list[i - 1] ?? 0)));
}

const types = ['f32', 'f16', 'bf16'] as const;
const layouts = ['input-major', 'output-major'] as const;

async function linearShapes(bench: Bench, random: Random): Promise<void> {
  const shapes = [
    [1, 3, 1],
    [1, 257, 4500],
    [2, 129, 70],
    [8, 140, 83],
    [16, 128, 33],
    [17, 261, 300],
    [70, 130, 65],
  ] as const;
  for (const [rows, inputs, outputs] of shapes) {
    for (const type of types) {
      for (const layout of layouts) {
        const x = bench.put(random.floats(rows * (inputs + 3)));
        const rowStride = (layout === 'input-major' ? outputs : inputs) + random.below(3);
        const stored = random.stored(
          type,
          rowStride * (layout === 'input-major' ? inputs : outputs),
          random.below(2) === 0,
        );
        const span = bench.put(stored);
        const outStride = outputs + 5;
        const out = bench.put(random.sums(rows * outStride));
        const continues = random.below(2) === 0;
        const bias = random.below(2) === 0 ? bench.put(random.floats(outputs)) : null;
        const residual = random.below(2) === 0 ? bench.put(random.floats(rows * outStride)) : null;
        await bench.same(
          {
            kind: 'linear',
            rows,
            x,
            xStride: inputs + 3,
            inputBegin: 0,
            inputEnd: inputs,
            outputs,
            matrix: { span, type, layout, rowStride },
            out,
            outStride,
            outOffset: 3,
            continues,
            bias,
            residual,
          },
          [out],
          `linear ${rows} x ${inputs} x ${outputs} ${type} ${layout}`,
        );
        bench.clear();
      }
    }
  }
}

async function laterInputs(bench: Bench, random: Random): Promise<void> {
  for (const layout of layouts) {
    for (const rows of [1, 3, 20]) {
      const [inputs, outputs] = [300, 41];
      const x = bench.put(random.floats(rows * inputs));
      const count = inputs - 128;
      const span = bench.put(random.floats(count * outputs));
      const out = bench.put(random.sums(rows * outputs));
      await bench.same(
        {
          kind: 'linear',
          rows,
          x,
          xStride: inputs,
          inputBegin: 128,
          inputEnd: inputs,
          outputs,
          matrix: { span, type: 'f32', layout, rowStride: layout === 'input-major' ? outputs : count },
          out,
          outStride: outputs,
          outOffset: 0,
          continues: true,
          bias: null,
          residual: null,
        },
        [out],
        `linear from input 128, ${layout}, ${rows} rows`,
      );
      bench.clear();
    }
  }
}

async function activeShapes(bench: Bench, random: Random): Promise<void> {
  for (const [rows, width, outputs] of [
    [1, 700, 133],
    [1, 50, 7],
    [4, 400, 90],
    [8, 300, 40],
    [18, 260, 150],
    [60, 300, 35],
  ] as const) {
    for (const type of types) {
      for (const share of [0, 0.04, 0.5, 1]) {
        const list = activeSet(random, width, share);
        const active = bench.put(list);
        const count = list[0]!;
        const slotList = Uint32Array.from(
          { length: Math.max(1, count) },
          (_, i) => (i * 7 + 3) % Math.max(1, count),
        );
        const slots = random.below(2) === 0 ? bench.put(slotList) : null;
        const xValues = random.floats(rows * width);
        const x = bench.put(xValues);
        const part = count > 4 && random.below(3) === 0;
        const [listBegin, listEnd] = part ? [1, count - 2] : [0, -1];
        const bias = random.below(2) === 0 ? bench.put(random.floats(outputs)) : null;
        const residual = random.below(2) === 0 ? bench.put(random.floats(rows * outputs)) : null;
        const span = bench.put(random.stored(type, width * outputs, false));
        const out = bench.put(random.sums(rows * outputs));
        await bench.same(
          {
            kind: 'active-inputs',
            rows,
            x,
            xStride: width,
            active,
            listBegin,
            listEnd,
            slots,
            outputs,
            matrix: { span, type, layout: 'input-major', rowStride: outputs },
            out,
            continues: random.below(2) === 0,
            bias,
            residual,
          },
          [out],
          `active-inputs ${rows} x ${width} x ${outputs} ${type} share ${share}`,
        );
        const inputs = 130 + random.below(20);
        const few = bench.put(random.floats(rows * inputs));
        const upSpan = bench.put(random.stored(type, width * inputs, true));
        const up = bench.put(random.floats(rows * (width + 2)));
        const neuronBias = random.below(2) === 0 ? bench.put(random.floats(width)) : null;
        await bench.same(
          {
            kind: 'active-outputs',
            rows,
            x: few,
            inputs,
            active,
            listBegin,
            listEnd,
            slots,
            matrix: { span: upSpan, type, layout: 'output-major', rowStride: inputs },
            out: up,
            outStride: width + 2,
            bias: neuronBias,
          },
          [up],
          `active-outputs ${rows} x ${inputs} of ${width} ${type} share ${share}`,
        );
        bench.clear();
      }
    }
  }
}

async function otherOps(bench: Bench, random: Random): Promise<void> {
  for (const activation of activationKinds) {
    const values = random.floats(9001);
    values.set([Number.NaN, Infinity, -Infinity, 3e38, -3e38, 1e-45, -1e-45, 0, -0, 88.8, -104, 0.75, 1, 4]);
    for (let i = 20; i < 4000; i++) values[i] = (random.unit() - 0.5) * 220;
    const x = bench.put(values);
    await bench.same({ kind: 'activate', count: 9001, activation, threshold: 0.3, x }, [x], activation);
    const up = bench.put(values);
    await bench.same({ kind: 'gated-product', count: 9001, gate: x, up }, [x], `gated ${activation}`);
  }
  bench.clear();
  for (const width of [1, 5, 128, 320, 1021, 1152, 2048 + 130]) {
    for (const norm of ['layer', 'rms'] as const) {
      const [x, out] = [bench.put(random.floats(3 * width)), bench.put(new Float32Array(3 * width))];
      const gamma = random.below(2) === 0 ? bench.put(random.floats(width)) : null;
      const beta = random.below(2) === 0 ? bench.put(random.floats(width)) : null;
      await bench.same(
        { kind: 'norm', norm, rows: 3, width, epsilon: 1e-5, x, gamma, beta, out },
        [out],
        `${norm} ${width}`,
      );
      await bench.same(
        { kind: 'norm', norm, rows: 3, width, epsilon: 1e-5, x, gamma, beta, out: x },
        [x],
        `${norm} ${width} in place`,
      );
    }
  }
  bench.clear();
  for (const [rows, width] of [
    [1, 1],
    [1, 1024],
    [3, 5000],
    [17, 2049],
  ] as const) {
    const values = Float32Array.from({ length: rows * width }, () =>
      random.unit() < 0.05 ? random.number() : random.below(2) === 0 ? 0 : -0,
    );
    values[random.below(values.length)] = Number.NaN;
    const active = bench.put(new Uint32Array(width + 1));
    await bench.same(
      { kind: 'compact', rows, width, x: bench.put(values), active },
      [active],
      `compact ${rows} x ${width}`,
    );
  }
  bench.clear();
  for (const type of types) {
    for (const columnStride of [1, 3]) {
      const [rows, columns, tableRows] = [5, 37, 11];
      const rowStride = columns * columnStride;
      const table = bench.put(random.stored(type, tableRows * rowStride, true));
      const ids = bench.put(Int32Array.from({ length: rows }, () => random.below(tableRows)));
      const out = bench.put(new Float32Array(rows * columns));
      await bench.same(
        { kind: 'gather', rows, columns, table, tableRows, type, rowStride, columnStride, ids, out },
        [out],
        `gather ${type}`,
      );
    }
  }
  bench.clear();
}

async function attentionShapes(bench: Bench, random: Random): Promise<void> {
  for (const type of ['f16', 'f32'] as const) {
    for (const [heads, kvHeads, headDim, capacity, rows] of [
      [4, 4, 16, 300, 3],
      [6, 2, 20, 40, 30],
      [2, 1, 130, 2100, 2],
    ] as const) {
      const slots = 2;
      const elements = slots * kvHeads * headDim * capacity;
      const bytes = elements / (type === 'f16' ? 2 : 1);
      const cache: KvLayer = {
        type,
        keys: bench.put(new Float32Array(bytes)),
        values: bench.put(new Float32Array(bytes)),
        slots,
        kvHeads,
        headDim,
        capacity,
      };
      const ordinary = (n: number) => Float32Array.from({ length: n }, () => random.unit() * 6 - 3);
      // A history in both slots, then the pass itself.
      const history = capacity - rows;
      const places = Int32Array.from({ length: history * 4 }, (_, i) =>
        i % 2 === 0 ? Math.floor(i / 2 / history) : (i >> 1) % history,
      );
      await bench.same(
        {
          kind: 'store-kv',
          rows: history * 2,
          positions: bench.put(places),
          keys: bench.put(ordinary(history * 2 * kvHeads * headDim)),
          values: bench.put(ordinary(history * 2 * kvHeads * headDim)),
          cache,
        },
        [cache.keys, cache.values],
        `store-kv ${type} history`,
        true,
      );
      const positions = bench.put(
        Int32Array.from({ length: rows * 2 }, (_, i) =>
          i % 2 === 0 ? (i >> 1) % slots : history + (i >> 2),
        ),
      );
      const keys = bench.put(ordinary(rows * kvHeads * headDim));
      await bench.same(
        { kind: 'store-kv', rows, positions, keys, values: keys, cache },
        [cache.keys, cache.values],
        `store-kv ${type}`,
        true,
      );
      const query = bench.put(ordinary(rows * heads * headDim));
      const scratch = bench.put(new Float32Array(mostThreads * capacity));
      const out = bench.put(new Float32Array(rows * heads * headDim));
      const scale = 1 / Math.sqrt(headDim);
      await bench.same(
        { kind: 'attention', rows, heads, positions, scale, query, cache, scratch, out },
        [out],
        `attention ${type} ${headDim}`,
      );
      const half = headDim / 2;
      const rotary = half % 2 === 0 ? headDim : headDim - 2;
      const tables = [0, 1].map(() => bench.put(ordinary(capacity * half)));
      await bench.same(
        {
          kind: 'rope',
          rows,
          heads,
          headDim,
          rotary,
          positions,
          cosines: tables[0]!,
          sines: tables[1]!,
          x: query,
        },
        [query],
        `rope ${rotary} of ${headDim}`,
      );
      bench.clear();
    }
  }
}

/** Attention scratch is made for up to this many threads. */
const mostThreads = 5;

export const shapeParts = { linearShapes, laterInputs, activeShapes, otherOps, attentionShapes };
