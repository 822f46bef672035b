import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import type { Op } from '../../src/backend/ops.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import { exp32 } from '../../src/base/elementary.js';
import { widenF16 } from '../../src/base/half.js';
import { type Span, spanOf } from '../../src/memory/buffers.js';
import { CaseRandom, type Flavor } from './contract/case-random.js';
import { kvOverflowContract } from './contract/kv-overflow.js';
import { storageContract } from './contract/storage-contract.js';
import {
  exactAdd,
  exactBlockSum,
  exactDivide,
  exactDot,
  exactMultiply,
  exactSquareRoot,
} from './exact-float.js';

const seed = 4711;

describe('oracle: storage', () => storageContract(seed, async () => openOracle()));
describe('oracle: KV overflow', () => kvOverflowContract(async () => openOracle()));

describe(`oracle: arithmetic (seed ${seed})`, () => {
  let backend: Backend;
  beforeAll(() => {
    backend = openOracle();
  });
  afterAll(() => backend.close());

  const place = (values: Float32Array | Int32Array | Uint32Array | Uint16Array): Span => {
    const buffer = backend.allocate({ label: 'operand', cause: 'workspace', byteLength: values.byteLength });
    backend.write(spanOf(buffer), new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return spanOf(buffer);
  };
  const run = (op: Op): Promise<void> => backend.submit([{ op, label: 'test' }]);
  const floats = async (span: Span): Promise<number[]> => [
    ...new Float32Array((await backend.read(span)).slice().buffer),
  ];
  /** NaN equals NaN, +0 does not equal -0. */
  const expectSame = (actual: readonly number[], wanted: readonly number[]): void => {
    expect(actual).toHaveLength(wanted.length);
    const at = wanted.findIndex((value, index) => !Object.is(value, actual[index]));
    if (at !== -1) expect.fail(`element ${at}: got ${actual[at]}, want ${wanted[at]}`);
  };
  const list = (random: CaseRandom, count: number, flavor: Flavor): number[] => [
    ...random.floats(count, flavor),
  ];

  describe('sums by the block rule', () => {
    const linear = async (
      x: number[],
      w: number[],
      layout: 'input-major' | 'output-major',
    ): Promise<number> => {
      const out = place(new Float32Array(1));
      await run({
        kind: 'linear',
        rows: 1,
        x: place(Float32Array.from(x)),
        xStride: x.length,
        inputBegin: 0,
        inputEnd: x.length,
        outputs: 1,
        matrix: {
          span: place(Float32Array.from(w)),
          type: 'f32',
          layout,
          rowStride: layout === 'input-major' ? 1 : x.length,
        },
        out,
        outStride: 1,
        outOffset: 0,
        continues: false,
        bias: null,
        residual: null,
      });
      return (await floats(out))[0]!;
    };

    it('starts anew every 128 inputs', async () => {
      // 2^24 + 1 is a tie that goes back to 2^24, so ones vanish beside 2^24 in the first block but not in the second.
      const x = Array.from({ length: 256 }, (_, index) => (index === 0 ? 2 ** 24 : 1));
      const ones = x.map(() => 1);
      for (const layout of ['input-major', 'output-major'] as const) {
        expect(await linear(x, ones, layout)).toBe(2 ** 24 + 128);
      }
      expect(x.reduce((sum, value) => Math.fround(sum + value), 0)).toBe(2 ** 24);
    });

    it('rounds the product before it adds', async () => {
      // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24; rounded apart the last term is lost, fused it would survive the sum.
      const x = [1 + 2 ** -12, 1];
      expect(await linear(x, [-(1 + 2 ** -12), 1 + 2 ** -11], 'input-major')).toBe(0);
    });

    it('gives no -0', async () => {
      expect(await linear([-0, -0, -0], [1, 1, 1], 'input-major')).toBe(0);
      expect(await linear([2 ** -100], [-(2 ** -100)], 'output-major')).toBe(0);
    });

    it.each(['plain', 'tiny', 'edges', 'wide'] as const)(
      'equals integer arithmetic, %s numbers',
      async (flavor) => {
        const random = new CaseRandom(seed, 1);
        for (const count of [1, 2, 127, 128, 129, 300]) {
          // The exact functions take finite numbers only, so the sum must not overflow on its way.
          const x = list(random, count, flavor).map((value) => (Math.abs(value) > 1e30 ? 1 : value));
          const w = list(random, count, flavor).map((value) => (Math.abs(value) > 1e30 ? -1 : value));
          const wanted = exactDot(x, w);
          expectSame(
            [await linear(x, w, 'input-major'), await linear(x, w, 'output-major')],
            [wanted, wanted],
          );
        }
      },
    );
  });

  it('linear adds bias, then residual, each rounded', async () => {
    const out = place(new Float32Array(4).fill(7));
    await run({
      kind: 'linear',
      rows: 2,
      x: place(Float32Array.of(1, 2, 99, 3, 4, 99)),
      xStride: 3,
      inputBegin: 0,
      inputEnd: 2,
      outputs: 1,
      matrix: {
        span: place(Uint16Array.of(0x3c00, 0x4000)),
        type: 'f16',
        layout: 'output-major',
        rowStride: 2,
      },
      out,
      outStride: 2,
      outOffset: 1,
      continues: false,
      bias: place(Float32Array.of(2 ** 24)),
      residual: place(Float32Array.of(50, 1, 50, -(2 ** 24))),
    });
    // Row 0: 1 + 4 = 5, + 2^24 = 2^24 + 5 -> tie to 2^24 + 4, + 1 -> tie to 2^24 + 4. Row 1: 11 -> 2^24 + 12 -> 12.
    expectSame(await floats(out), [7, 2 ** 24 + 4, 7, 12]);
  });

  it('active-inputs and active-outputs read listed rows from their slots', async () => {
    const active = place(Uint32Array.of(2, 1, 130, 0));
    const slots = place(Uint32Array.of(1, 0));
    const x = new Float32Array(131);
    x[1] = 3;
    x[130] = 5;
    const out = place(new Float32Array(2));
    const matrix = { span: place(Float32Array.of(10, 20, 1, 2)), type: 'f32', rowStride: 2 } as const;
    await run({
      kind: 'active-inputs',
      rows: 1,
      x: place(x),
      xStride: 131,
      active,
      listBegin: 0,
      listEnd: -1,
      slots,
      outputs: 2,
      matrix: { ...matrix, layout: 'input-major' },
      out,
      continues: false,
      bias: null,
      residual: place(Float32Array.of(100, 200)),
    });
    expectSame(await floats(out), [3 * 1 + 5 * 10 + 100, 3 * 2 + 5 * 20 + 200]);
    const wide = place(new Float32Array(131).fill(-1));
    await run({
      kind: 'active-outputs',
      rows: 1,
      x: place(Float32Array.of(2, 7)),
      inputs: 2,
      active,
      listBegin: 1,
      listEnd: -1,
      slots,
      matrix: { ...matrix, layout: 'output-major' },
      out: wide,
      outStride: 131,
      bias: place(new Float32Array(131).fill(0.5)),
    });
    const wanted = new Array<number>(131).fill(-1);
    wanted[130] = 2 * 10 + 7 * 20 + 0.5;
    expectSame(await floats(wide), wanted);
  });

  it('compact lists NaN and subnormals, not -0', async () => {
    const active = place(new Uint32Array(6));
    const x = place(Float32Array.of(0, -0, Number.NaN, 0, 0, 0, 0, 0, 2 ** -149, -0));
    await run({ kind: 'compact', rows: 2, width: 5, x, active });
    expect([...new Uint32Array((await backend.read(active)).slice().buffer).subarray(0, 3)]).toEqual([
      2, 2, 3,
    ]);
  });

  it.each([
    ['relu', 0, [-1, -0, 2, Number.NaN, 2 ** -149], [0, 0, 2, Number.NaN, 2 ** -149]],
    ['relu2', 0, [-3, 3, 2 ** -100, Number.NaN, 1e30], [0, 9, 0, Number.NaN, Number.POSITIVE_INFINITY]],
    ['fatrelu', 0.5, [0.5, 0.75, -1, Number.NaN, -0], [0, 0.75, 0, Number.NaN, 0]],
    ['fatrelu', -1, [-1, -0.5, -0, 1, -2], [0, -0.5, 0, 1, 0]],
    ['silu', 0, [-0, 0, -200, Number.NaN], [0, 0, 0, Number.NaN]],
    ['gelu', 0, [-0, -50, 50], [0, 0, 50]],
    ['gelu_tanh', 0, [-0, -50, 50], [0, 0, 50]],
    ['quick_gelu', 0, [-0, -100, 100], [0, 0, 100]],
    ['tanh', 0, [-0, 100, -100], [0, 1, -1]],
    ['sigmoid', 0, [0, 200, -200], [0.5, 1, 0]],
    ['identity', 0, [-0, -5, Number.NaN], [0, -5, Number.NaN]],
  ] as const)('activate %s (threshold %d) of %j', async (activation, threshold, values, wanted) => {
    const x = place(Float32Array.from(values));
    await run({ kind: 'activate', count: values.length, activation, threshold, x });
    expectSame(await floats(x), wanted);
  });

  it('gated-product ignores the other factor of a closed gate, and makes zeros positive', async () => {
    const gate = place(Float32Array.of(0, -0, 0, 2, -1, 2 ** -100, Number.NaN));
    const up = place(Float32Array.of(Number.NaN, 5, Number.POSITIVE_INFINITY, 3, 0, -(2 ** -100), 1));
    await run({ kind: 'gated-product', count: 7, gate, up });
    expectSame(await floats(gate), [0, 0, 0, 6, 0, 0, Number.NaN]);
  });

  it.each(['layer', 'rms'] as const)('%s norm equals integer arithmetic', async (norm) => {
    const random = new CaseRandom(seed, 2);
    for (const n of [1, 5, 128, 200]) {
      const [x, gamma, beta] = [list(random, n, 'plain'), list(random, n, 'plain'), list(random, n, 'plain')];
      const epsilon = Math.fround(1e-5);
      const mean = norm === 'layer' ? exactDivide(exactBlockSum(x), n) : 0;
      const centred = norm === 'layer' ? x.map((value) => exactAdd(value, -mean)) : x;
      const variance = exactDivide(exactDot(centred, centred), n);
      const r = exactDivide(1, exactSquareRoot(exactAdd(variance, epsilon)));
      const wanted = centred.map((value, i) => {
        const scaled = exactMultiply(exactMultiply(value, r), gamma[i]!);
        return norm === 'layer' ? exactAdd(scaled, beta[i]!) : scaled;
      });
      const span = place(Float32Array.from(x));
      await run({
        kind: 'norm',
        norm,
        rows: 1,
        width: n,
        epsilon: 1e-5,
        x: span,
        gamma: place(Float32Array.from(gamma)),
        beta: norm === 'layer' ? place(Float32Array.from(beta)) : null,
        out: span,
      });
      expectSame(await floats(span), wanted);
    }
  });

  it('rope pairs the halves and leaves the rest', async () => {
    const random = new CaseRandom(seed, 3);
    const [x, cosines, sines] = [
      list(random, 10, 'plain'),
      list(random, 6, 'plain'),
      list(random, 6, 'plain'),
    ];
    const wanted = [...x];
    for (const head of [0, 5]) {
      for (const i of [0, 1]) {
        const [a, b, c, s] = [x[head + i]!, x[head + i + 2]!, cosines[4 + i]!, sines[4 + i]!];
        wanted[head + i] = exactAdd(exactMultiply(a, c), -exactMultiply(b, s));
        wanted[head + i + 2] = exactAdd(exactMultiply(b, c), exactMultiply(a, s));
      }
    }
    const span = place(Float32Array.from(x));
    await run({
      kind: 'rope',
      rows: 1,
      heads: 2,
      headDim: 5,
      rotary: 4,
      positions: place(Int32Array.of(1, 2)),
      cosines: place(Float32Array.from(cosines)),
      sines: place(Float32Array.from(sines)),
      x: span,
    });
    expectSame(await floats(span), wanted);
  });

  it('gather widens, steps by columns, and refuses rows outside the table', async () => {
    const out = place(new Float32Array(4));
    const gather = (ids: number[]) =>
      run({
        kind: 'gather',
        rows: 2,
        columns: 2,
        table: place(Uint16Array.of(0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0)),
        tableRows: 3,
        type: 'bf16',
        rowStride: 1,
        columnStride: 3,
        ids: place(Int32Array.from(ids)),
        out,
      });
    await gather([2, 0]);
    expectSame(await floats(out), [3, 6, 1, 4]);
    await expect(gather([0, 3])).rejects.toMatchObject({ code: 'defect' });
    await expect(gather([-1, 0])).rejects.toMatchObject({ code: 'defect' });
  });

  it('attention equals integer arithmetic over what the F16 cache stores', async () => {
    const random = new CaseRandom(seed, 4);
    const [heads, kvHeads, headDim, capacity, slots] = [4, 2, 3, 140, 2];
    const elements = slots * kvHeads * headDim * capacity;
    const keys = new Uint16Array(random.weights('f16', elements, 'plain').slice().buffer);
    const values = new Uint16Array(random.weights('f16', elements, 'plain').slice().buffer);
    const query = list(random, 2 * heads * headDim, 'plain');
    const scale = Math.fround(0.57735026);
    const places = [1, 133, 0, 0];
    const wanted: number[] = [];
    for (const t of [0, 1]) {
      const [slot, position] = [places[2 * t]!, places[2 * t + 1]!];
      for (let head = 0; head < heads; head++) {
        const plane = slot * kvHeads + (head >> 1);
        const q = query.slice((t * heads + head) * headDim, (t * heads + head + 1) * headDim);
        const positions = Array.from({ length: position + 1 }, (_, p) => p);
        const scores = positions.map((p) =>
          exactMultiply(
            exactDot(
              q,
              q.map((_, i) => widenF16(keys[(plane * headDim + i) * capacity + p]!)),
            ),
            scale,
          ),
        );
        const e = scores.map((score) => exp32(exactAdd(score, -Math.max(...scores))));
        for (let i = 0; i < headDim; i++) {
          const column = positions.map((p) => widenF16(values[(plane * capacity + p) * headDim + i]!));
          wanted.push(exactDivide(exactDot(e, column), exactBlockSum(e)));
        }
      }
    }
    const out = place(new Float32Array(wanted.length));
    const cache = {
      type: 'f16',
      keys: place(keys),
      values: place(values),
      slots,
      kvHeads,
      headDim,
      capacity,
    } as const;
    await run({
      kind: 'attention',
      rows: 2,
      heads,
      positions: place(Int32Array.from(places)),
      scale,
      query: place(Float32Array.from(query)),
      cache,
      scratch: place(new Float32Array(capacity)),
      out,
    });
    expectSame(await floats(out), wanted);
  });
});
