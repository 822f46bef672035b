import { isExact } from '../../src/acquire/policies.js';
import { policyNames } from '../../src/acquire/policy.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import type { LinearOp, Op } from '../../src/backend/ops.js';
import { narrowF16, widenF16 } from '../../src/base/half.js';
import { type Span, spanOf, subspan } from '../../src/memory/buffers.js';
import { check } from './check.js';
import type { TestCounts } from './mini-runner.js';
import { digestsOf, minimumBudget, type Options } from './parity.js';

type Log = (line: string) => void;

const rows = 200;
const inputs = 1304; // no multiple of a stage
const outputs = 1000;
/** What sums of so many terms in F32 can be away from the exact sum, relative to the sum of magnitudes. */
const tolerance = 1e-4;

/**
 * Products on tensor cores: near the exact ones, and the same bits for any number of rows, any cut of the inputs, either
 * layout, listed neurons alone, and any tile.
 */
export async function checkNativeProducts(counts: TestCounts, log: Log): Promise<void> {
  const gpu = await openCuda({ numerics: 'native' });
  const room = (byteLength: number): Span =>
    spanOf(gpu.allocate({ label: 'native test', cause: 'workspace', byteLength }));
  const put = (values: ArrayBufferView): Span => {
    const span = room(values.byteLength);
    gpu.write(span, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return span;
  };
  try {
    const random = generator(20261130);
    // A third of the inputs is active in some row; inside those, zeros.
    const active = Array.from({ length: inputs }, (_, index) => index).filter(() => random() < 1 / 3);
    const activeSet = new Set(active);
    const x = new Float32Array(rows * inputs);
    for (let at = 0; at < x.length; at += 1)
      if (activeSet.has(at % inputs) && random() < 0.6) x[at] = 4 * random() - 2;
    const w = Uint16Array.from({ length: inputs * outputs }, () => narrowF16(random() - 0.5));
    const transposed = new Uint16Array(w.length);
    for (let k = 0; k < inputs; k += 1)
      for (let n = 0; n < outputs; n += 1) transposed[n * inputs + k] = w[k * outputs + n]!;
    const bias = Float32Array.from({ length: outputs }, () => random() - 0.5);
    const [xs, ws, ts, bs] = [put(x), put(w), put(transposed), put(bias)];
    const whole = (count: number, firstRow = 0): LinearOp => ({
      kind: 'linear',
      rows: count,
      x: subspan(xs, firstRow * inputs * 4, count * inputs * 4),
      xStride: inputs,
      inputBegin: 0,
      inputEnd: inputs,
      outputs,
      matrix: { span: ws, type: 'f16', layout: 'input-major', rowStride: outputs },
      out: room(count * outputs * 4),
      outStride: outputs,
      outOffset: 0,
      continues: false,
      bias: bs,
      residual: null,
      numerics: 'native',
    });
    const result = async (ops: readonly Op[], out: Span): Promise<Buffer> => {
      await gpu.submit(ops.map((op) => ({ op, label: op.kind })));
      return Buffer.from(await gpu.read(out));
    };
    const one = whole(rows);
    const expected = await result([one], one.out);
    const same = (name: string, found: Buffer, from = 0): void => {
      const wanted = expected.subarray(from, from + found.byteLength);
      if (found.equals(wanted)) return;
      throw new Error(`${name}: bytes differ`);
    };
    await check('native products are near the exact ones', counts, log, async () => {
      const values = new Float32Array(expected.buffer, expected.byteOffset, rows * outputs);
      let worst = 0;
      for (let row = 0; row < rows; row += 17)
        for (let n = 0; n < outputs; n += 1) {
          let [sum, magnitude] = [bias[n]!, Math.abs(bias[n]!)];
          for (const k of active) {
            const term = widenF16(narrowF16(x[row * inputs + k]!)) * widenF16(w[k * outputs + n]!);
            sum += term;
            magnitude += Math.abs(term);
          }
          worst = Math.max(worst, Math.abs(values[row * outputs + n]! - sum) / magnitude);
        }
      log(`native products: largest error ${worst.toExponential(2)} of the sum of magnitudes`);
      if (!(worst <= tolerance)) throw new Error(`an error of ${worst}, want at most ${tolerance}`);
    });
    await check('native products do not depend on the other rows, or the tile', counts, log, async () => {
      for (const [first, count] of [
        [0, 1],
        [37, 1],
        [37, 7],
        [130, 64],
        [3, 65],
        [72, 128],
      ] as const) {
        const op = whole(count, first);
        same(`rows ${first} to ${first + count}`, await result([op], op.out), first * outputs * 4);
      }
    });
    await check('native products do not depend on where the inputs are cut', counts, log, async () => {
      for (const cut of [128, 640, 1280]) {
        const op = whole(rows);
        const at = (begin: number, end: number): LinearOp => ({
          ...op,
          inputBegin: begin,
          inputEnd: end,
          matrix: { ...op.matrix, span: subspan(ws, begin * outputs * 2, (end - begin) * outputs * 2) },
          continues: begin > 0,
          bias: end === inputs ? bs : null,
        });
        same(`cut at ${cut}`, await result([at(0, cut), at(cut, inputs)], op.out));
      }
    });
    await check('native products do not depend on the layout', counts, log, async () => {
      const op = whole(rows);
      const matrix = { span: ts, type: 'f16', layout: 'output-major', rowStride: inputs } as const;
      same('output-major', await result([{ ...op, matrix }], op.out));
    });
    const setOf = (neurons: readonly number[], width: number): Span => {
      const words = new Uint32Array(1 + width);
      words[0] = neurons.length;
      words.set(neurons, 1);
      return put(words);
    };
    await check('rows of inactive neurons are not needed', counts, log, async () => {
      // The rows of the active neurons alone, packed in another order, and NaN in the place of all others.
      const slots = active.map((_, index) => (index * 7) % active.length);
      const unique = new Set(slots).size === active.length ? slots : active.map((_, index) => index);
      const packed = new Uint16Array(active.length * outputs);
      active.forEach((k, index) => {
        packed.set(w.subarray(k * outputs, (k + 1) * outputs), unique[index]! * outputs);
      });
      const holes = Uint16Array.from(w, (value, at) =>
        activeSet.has(Math.floor(at / outputs)) ? value : 0x7e00,
      );
      const set = setOf(active, inputs);
      const middle = active.findIndex((neuron) => neuron >= 640);
      for (const [name, matrix, places, ranges] of [
        ['by neuron', put(holes), null, [[0, -1]]],
        ['by slot', put(packed), put(Uint32Array.from(unique)), [[0, -1]]],
        [
          'in two rounds',
          put(packed),
          put(Uint32Array.from(unique)),
          [
            [0, middle],
            [middle, active.length],
          ],
        ],
      ] as const) {
        const op = whole(rows);
        const ops = ranges.map(
          ([listBegin, listEnd], index): Op => ({
            kind: 'active-inputs',
            rows,
            x: xs,
            xStride: inputs,
            active: set,
            listBegin,
            listEnd,
            slots: places,
            outputs,
            matrix: { ...op.matrix, span: matrix },
            out: op.out,
            continues: index > 0,
            bias: index === ranges.length - 1 ? bs : null,
            residual: null,
            numerics: 'native',
          }),
        );
        same(name, await result(ops, op.out));
      }
    });
    await check('outputs of listed neurons are those of the whole product', counts, log, async () => {
      const neurons = Array.from({ length: outputs }, (_, n) => n).filter((n) => n % 3 === 1 || n > 950);
      const op = whole(rows);
      gpu.write(op.out, expected); // columns that are not listed keep their bytes
      const listed: Op = {
        kind: 'active-outputs',
        rows,
        x: xs,
        inputs,
        active: setOf(neurons, outputs),
        listBegin: 0,
        listEnd: -1,
        slots: null,
        matrix: { span: ts, type: 'f16', layout: 'output-major', rowStride: inputs },
        out: op.out,
        outStride: outputs,
        bias: bs,
        numerics: 'native',
      };
      same('active-outputs', await result([listed], op.out));
    });
    await check('an activation beyond F16 is an error', counts, log, async () => {
      const far = put(new Float32Array(inputs).fill(70_000));
      const op = { ...whole(1), x: far };
      const failure = await gpu.submit([{ op, label: 'far' }]).then(
        () => null,
        (error: unknown) => error,
      );
      if ((failure as { code?: string } | null)?.code !== 'activation-overflow')
        throw new Error(`want "activation-overflow", got ${String(failure)}`);
    });
  } finally {
    await gpu.close();
  }
}

/** Logits digests in native numerics are one for every policy, budget, batch and chunking. */
export async function checkNativeModel(
  model: string,
  prompts: readonly (readonly number[])[],
  tokens: number,
  counts: TestCounts,
  log: Log,
): Promise<void> {
  const longest = Math.max(...prompts.map(({ length }) => length)) + tokens + 1;
  const base: Options = {
    model,
    backend: 'cuda',
    numerics: 'native',
    contextPositions: longest,
    clampContext: true,
  };
  const alone = async (options: Options): Promise<string> => {
    const found: (readonly string[])[] = [];
    for (const prompt of prompts) found.push(...(await digestsOf(options, [prompt], tokens)).perRequest);
    return JSON.stringify(found);
  };
  const expected = await alone({ ...base, policy: 'resident' });
  const equal = (name: string, options: Options, together = false): Promise<void> =>
    check(`native ${model} ${name}`, counts, log, async () => {
      const found = together
        ? JSON.stringify((await digestsOf(options, prompts, tokens)).perRequest)
        : await alone(options);
      if (found !== expected) throw new Error('logits digests differ from those of the resident model');
    });
  await equal('again', { ...base, policy: 'resident' });
  for (const policy of policyNames) {
    // Certificates hold in portable numerics; quantised weights are others.
    if (policy === 'certified' || !isExact(policy)) continue;
    const one: Options = { ...base, policy };
    if (policy.startsWith('resident')) {
      await equal(policy, one);
      continue;
    }
    const least = await minimumBudget(one);
    for (const budgetBytes of [least, Math.floor(least * 1.4)])
      await equal(`${policy}, ${budgetBytes} B`, { ...one, budgetBytes });
  }
  for (const policy of ['resident', 'packets', 'phase'] as const)
    for (const prefillChunk of [1, 7, 128]) {
      const name = `${policy}, batch of ${prompts.length}, chunks of ${prefillChunk}`;
      await equal(name, { ...base, policy, slots: prompts.length, prefillChunk }, true);
    }
  const portable = await alone({ ...base, numerics: 'portable', policy: 'resident' });
  log(
    `native ${model}: digests ${portable === expected ? 'are also' : 'are not'} those of portable numerics`,
  );
}

/** Uniform in [0, 1); 22 bits. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 10) / 2 ** 22;
  };
}
