import { describe, expect, it } from 'vitest';
import type { LowBitCopy, Op } from '../../src/backend/ops.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import { lowBitFormats, lowBitNames, RowQuantiser } from '../../src/checkpoint/low-bit.js';
import {
  LowBitCopyWriter,
  type LowBitDirections,
  roundDirections,
} from '../../src/checkpoint/low-bit-copy.js';
import { roundedInputLayout } from '../../src/checkpoint/low-bit-layout.js';
import { type Span, spanOf } from '../../src/memory/buffers.js';
import { CaseRandom, type Flavor, finiteFlavors } from './contract/case-random.js';

/**
 * Tries to break the certificate: whatever the numbers, no neuron whose pre-activation by the contract lies above the
 * threshold may be certified. Rows of every flavor are moved, by their biases, to within a few units in the last place of
 * the threshold, where the low-bit product and the contract's sum fall on different sides.
 */
const seed = 20261201;
const f = Math.fround;

interface Trial {
  readonly inputs: number;
  readonly x: Float32Array; // [T, K]
  readonly rows: number;
  readonly weights: readonly Float32Array[];
  readonly bias: Float32Array | null;
  readonly threshold: number;
  readonly directions: LowBitDirections | null;
}

interface Outcome {
  /** The contract's pre-activations, [T, N]. */
  readonly exact: Float32Array;
  readonly certified: boolean[];
}

const oracle = openOracle();

async function run(trial: Trial, name: (typeof lowBitNames)[number]): Promise<Outcome> {
  const { inputs, x, rows, weights, bias, threshold, directions } = trial;
  const outputs = weights.length;
  const format = lowBitFormats[name];
  const writer = new LowBitCopyWriter(inputs, outputs, format, directions);
  weights.forEach((row, neuron) => {
    writer.add(neuron, row);
  });
  const held: Span[] = [];
  const put = (bytes: Uint8Array): Span => {
    const span = spanOf(
      oracle.allocate({ label: 'trial', cause: 'workspace', byteLength: bytes.byteLength }),
    );
    oracle.write(span, bytes);
    held.push(span);
    return span;
  };
  const room = (byteLength: number) => put(new Uint8Array(byteLength));
  const bytes = (array: Float32Array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const matrix = new Float32Array(inputs * outputs);
  weights.forEach((row, neuron) => {
    matrix.set(row, neuron * inputs);
  });
  const xs = put(bytes(x));
  const biasSpan = bias === null ? null : put(bytes(bias));
  const directionCount = directions?.count ?? 0;
  const copy: LowBitCopy = {
    span: put(writer.bytes),
    format,
    inputs,
    outputs,
    directions: directionCount,
    directionExponent: directions?.exponent ?? 0,
  };
  const rounded = room(roundedInputLayout(rows, inputs, directionCount).byteLength);
  const marks = room(rows * outputs * 4);
  const exact = room(rows * outputs * 4);
  const ops: Op[] = [
    { kind: 'round-input', rows, x: xs, copy, out: rounded },
    { kind: 'certify', rows, copy, input: rounded, bias: biasSpan, threshold, out: marks },
    {
      kind: 'linear',
      rows,
      x: xs,
      xStride: inputs,
      inputBegin: 0,
      inputEnd: inputs,
      outputs,
      matrix: { span: put(bytes(matrix)), type: 'f32', layout: 'output-major', rowStride: inputs },
      out: exact,
      outStride: outputs,
      outOffset: 0,
      continues: false,
      bias: biasSpan,
      residual: null,
    },
  ];
  await oracle.submit(ops.map((op) => ({ label: op.kind, op })));
  const floats = async (span: Span) => new Float32Array((await oracle.read(span)).slice().buffer);
  const outcome = {
    exact: await floats(exact),
    certified: Array.from(await floats(marks), (mark) => mark === 0),
  };
  for (const span of held) oracle.release(span.buffer);
  return outcome;
}

/** Fails with the place of the first active neuron that was certified; counts what was. */
function check(outcome: Outcome, threshold: number, where: string): number {
  let certified = 0;
  outcome.certified.forEach((isCertified, at) => {
    if (!isCertified) return;
    certified += 1;
    const value = outcome.exact[at]!;
    if (!(value <= threshold)) expect.fail(`${where}: entry ${at} is ${value}, certified at ${threshold}`);
  });
  return certified;
}

function directionsOf(random: CaseRandom, inputs: number, index: number): LowBitDirections | null {
  const count = [0, 16, 0, 64, 32][index % 5]!;
  if (count === 0) return null;
  const length = random.pick([0.01, 1, 3]) / Math.sqrt(inputs);
  return roundDirections(
    Array.from({ length: count }, () =>
      Float64Array.from({ length: inputs }, () => (2 * random.uniform() - 1) * length),
    ),
    inputs,
  );
}

/** Moves each bias so that the first row of x lands about `distance` (of the sum's own error) above the threshold. */
async function atTheEdge(random: CaseRandom, trial: Trial): Promise<Trial> {
  const { exact } = await run({ ...trial, bias: null }, 'int8');
  const outputs = trial.weights.length;
  const bias = new Float32Array(outputs);
  for (let n = 0; n < outputs; n += 1) {
    const sum = exact[n]!;
    const reach = Math.abs(sum) * 2 ** -random.below(26);
    const wanted = trial.threshold + (random.chance(0.7) ? 1 : -1) * random.uniform() * reach;
    bias[n] = Number.isFinite(sum) ? f(wanted - sum) : 0;
  }
  return { ...trial, bias };
}

describe(`certificates of inactivity (seed ${seed})`, () => {
  for (const name of lowBitNames) {
    it(`never certify an active neuron, ${name}`, async () => {
      let certified = 0;
      for (let index = 0; index < 60; index += 1) {
        const random = new CaseRandom(seed, index);
        const inputs = random.pick([1, 7, 31, 32, 33, 96, 128, 129, 257, 400]);
        const rows = 1 + random.below(3);
        const flavor: Flavor = random.pick(finiteFlavors);
        const weights = Array.from({ length: 24 }, () => random.floats(inputs, random.pick(finiteFlavors)));
        const x = random.floats(rows * inputs, flavor);
        const trial = await atTheEdge(random, {
          inputs,
          x,
          rows,
          weights,
          bias: null,
          threshold: random.pick([0, 0, f(0.01), f(1e-30), f(1e30)]),
          directions: directionsOf(random, inputs, index),
        });
        certified += check(await run(trial, name), trial.threshold, `case ${index}`);
      }
      expect(certified).toBeGreaterThan(200); // else the suite would prove nothing
    });

    it(`never certify rows that cancel to just above the threshold, ${name}`, async () => {
      let below = 0;
      for (let index = 0; index < 30; index += 1) {
        const random = new CaseRandom(seed + 1, index);
        const trial = cancelling(random, index);
        const outcome = await run(trial, name);
        check(outcome, 0, `case ${index}`);
        below += lowBitBelow(trial, name, outcome);
      }
      expect(below).toBeGreaterThan(20); // active neurons whose low-bit product says inactive were met
    });

    it(`never certify an active neuron whose input lies along its residual, ${name}`, async () => {
      let uncertain = 0;
      for (let index = 0; index < 60; index += 1) {
        const random = new CaseRandom(seed + 2, index);
        const inputs = random.pick([32, 100, 129, 256]);
        const row = random.floats(inputs, 'plain');
        const rounded = roundedRow(row, inputs, name);
        // Cauchy and Schwarz's inequality is an equality here: the bound has nothing to give away.
        const x = row.map((weight, i) => f((weight - rounded[i]!) * 2 ** random.pick([0, 0, 0, 40, -40])));
        const scale = 2 ** (random.below(60) - 30);
        const trial = await atTheEdge(random, {
          inputs,
          x: index % 2 === 0 ? row.map((weight, i) => f((weight - rounded[i]!) * scale)) : x,
          rows: 1,
          weights: [row],
          bias: null,
          threshold: 0,
          directions: directionsOf(random, inputs, index),
        });
        const outcome = await run(trial, name);
        uncertain += 1 - check(outcome, 0, `case ${index}`);
      }
      expect(uncertain).toBeGreaterThan(20);
    });
  }

  it('certifies nothing where the input holds NaN or an infinity', async () => {
    for (const value of [Number.NaN, Infinity, -Infinity]) {
      const random = new CaseRandom(seed, 7);
      const x = random.floats(64, 'plain');
      x[random.below(64)] = value;
      const bias = new Float32Array(8).fill(-1e30);
      const weights = Array.from({ length: 8 }, () => random.floats(64, 'plain'));
      for (const directions of [null, directionsOf(random, 64, 1)]) {
        const outcome = await run(
          { inputs: 64, x, rows: 1, weights, bias, threshold: 0, directions },
          'int8',
        );
        expect(outcome.certified).not.toContain(true);
      }
    }
  });

  it('certifies nothing that could overflow on the way, nor by a bias that is no number', async () => {
    const huge = f(2 ** 64);
    const weights = [new Float32Array(32).fill(-huge), new Float32Array(32).fill(-1)];
    const x = new Float32Array(32).fill(huge);
    const outcome = await run(
      { inputs: 32, x, rows: 1, weights, bias: null, threshold: 0, directions: null },
      'int8',
    );
    expect(outcome.certified).toEqual([false, true]);
    const odd = await run(
      {
        inputs: 32,
        x: new Float32Array(32).fill(1),
        rows: 1,
        weights: [...weights, weights[1]!],
        bias: Float32Array.of(Number.NaN, -Infinity, -1),
        threshold: 0,
        directions: null,
      },
      'int8',
    );
    expect(odd.certified).toEqual([false, false, true]);
  });

  it('takes zeros of either sign, and rows of zeros, by their bias alone', async () => {
    const zeros = Float32Array.from({ length: 40 }, (_, i) => (i % 2 === 0 ? 0 : -0));
    const bias = Float32Array.of(-1, 0, 1, -(2 ** -126), 2 ** -149);
    const weights = Array.from({ length: 5 }, () => zeros);
    for (const x of [zeros, new Float32Array(40).fill(1)]) {
      const outcome = await run(
        { inputs: 40, x, rows: 1, weights, bias, threshold: 0, directions: null },
        'int4g32',
      );
      expect(check(outcome, 0, 'zeros')).toBe(outcome.certified.filter(Boolean).length);
      expect(outcome.certified[0]).toBe(true);
      expect(outcome.certified.slice(1, 3)).toEqual([false, false]);
      expect(outcome.certified[4]).toBe(false);
    }
  });
});

/** Rows of large terms that nearly cancel; what remains is small, and the low-bit copy loses it. */
function cancelling(random: CaseRandom, index: number): Trial {
  const inputs = random.pick([64, 128, 200]);
  const half = inputs / 2;
  const x = random.floats(inputs, 'plain').map((value) => (value === 0 ? 1 : value));
  const scale = 2 ** (random.below(120) - 60);
  const weights = Array.from({ length: 24 }, () => {
    const row = new Float32Array(inputs);
    for (let i = 0; i < half; i += 1) {
      row[i] = f((2 * random.uniform() - 1) * scale);
      row[half + i] = f((-row[i]! * x[i]!) / x[half + i]!); // cancels but for rounding
    }
    const at = random.below(inputs);
    const nudge = f(random.uniform() * scale * 2 ** -random.below(30));
    row[at] = f(row[at]! + (x[at]! > 0 ? nudge : -nudge) * (random.chance(0.6) ? 1 : -4));
    return row;
  });
  return {
    inputs,
    x,
    rows: 1,
    weights,
    bias: null,
    threshold: 0,
    directions: directionsOf(random, inputs, index),
  };
}

/** Active neurons whose product with the rounded row is not above 0. */
function lowBitBelow(trial: Trial, name: (typeof lowBitNames)[number], { exact }: Outcome): number {
  const { inputs, x, weights } = trial;
  let found = 0;
  weights.forEach((row, neuron) => {
    if (!(exact[neuron]! > 0)) return;
    const rounded = roundedRow(row, inputs, name);
    let sum = 0;
    for (let i = 0; i < inputs; i += 1) sum += rounded[i]! * x[i]!;
    if (sum <= 0) found += 1;
  });
  return found;
}

function roundedRow(row: Float32Array, inputs: number, name: (typeof lowBitNames)[number]): Float64Array {
  const { scale, codes, groupScales } = new RowQuantiser(inputs, lowBitFormats[name]).quantise(row);
  return Float64Array.from(
    { length: inputs },
    (_, i) => scale * groupScales[Math.floor(i / 32)]! * codes[i]!,
  );
}
