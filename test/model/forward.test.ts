import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import type { ModelConfig } from '../../src/checkpoint/model-config.js';
import { oracleBackend } from './backends.js';
import { bytesOfRows, Harness, relativeL2 } from './harness.js';
import { SeededNumbers } from './random.js';
import { referenceLogits } from './reference-model.js';
import { llamaConfig, optConfig, tinyWeights } from './tiny-models.js';

const seed = 20261130;
const length = 24;
const capacity = 32;

const yarn = {
  type: 'yarn',
  factor: 4,
  attentionFactor: null,
  betaFast: 32,
  betaSlow: 1,
  mscale: null,
  mscaleAllDim: null,
  truncate: true,
  originalPositions: 12,
} as const;

/** Each sparse model has layers in which some activations, but not all, are zero. */
const configs: Record<string, ModelConfig> = {
  opt: optConfig(),
  'opt, post-norm, narrow embeddings': optConfig({ preNorm: false, finalNorm: false, embeddingSize: 24 }),
  'opt, no bias, plain norms, no final norm': optConfig({ bias: false, affineNorm: false, finalNorm: false }),
  'opt, tanh GELU, wide embeddings, untied': optConfig({
    activation: 'gelu_tanh',
    embeddingSize: 72,
    tied: false,
  }),
  'llama, gated ReLU, biases': llamaConfig({ qkvBias: true, outputBias: true, ffnBias: true }),
  'llama, FATReLU, llama3 positions': llamaConfig({
    activation: 'fatrelu',
    activationThreshold: 0.4,
    tied: false,
    ropeScaling: {
      type: 'llama3',
      factor: 8,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalPositions: 40,
    },
  }),
  'llama, SiLU, dynamic positions beyond the original length': llamaConfig({
    activation: 'silu',
    ropeScaling: { type: 'dynamic', factor: 3, originalPositions: 8 },
  }),
  'llama, quick GELU, linear positions, one KV head': llamaConfig({
    activation: 'quick_gelu',
    kvHeads: 1,
    ropeScaling: { type: 'linear', factor: 2 },
  }),
  'nemotron, partial rotary': llamaConfig({
    norm: 'layer',
    gated: false,
    activation: 'relu2',
    rotary: 6,
    tied: false,
  }),
  'arcee, yarn': llamaConfig({ gated: false, activation: 'relu2', ropeScaling: yarn }),
  'llama, gated squared ReLU, yarn with mscales, wide heads': llamaConfig({
    activation: 'relu2',
    headDim: 20,
    rotary: 20,
    ropeScaling: { ...yarn, truncate: false, mscale: 1, mscaleAllDim: 0.5 },
  }),
};

let backend: Backend;
beforeAll(async () => {
  backend = await oracleBackend.open();
});
afterAll(() => backend.close());

describe.each(Object.entries(configs))('%s', (_name, config) => {
  const weights = tinyWeights(config, seed);
  const numbers = new SeededNumbers(seed + 1);
  const sequence = (): number[] => Array.from({ length }, () => numbers.index(config.vocabSize));
  const ids = sequence();
  const others = [sequence(), sequence(), sequence()];

  it(`agrees with a plain binary64 implementation (seed ${seed})`, async () => {
    const harness = Harness.tiny(backend, weights, { capacity, maxRows: length });
    const logits = await harness.sequence(ids, length);
    const reference = referenceLogits(weights, ids);
    for (const [position, row] of logits.entries()) {
      expect(relativeL2(row, reference[position]!), `position ${position}`).toBeLessThan(3e-6);
    }
  });

  it.each(['f32', 'f16'] as const)(
    `gives the same bits in chunks, in a batch, from active rows (${'%s'} KV, seed ${seed})`,
    async (kv) => {
      const whole = Harness.tiny(backend, weights, { capacity, maxRows: length, kv });
      const alone = bytesOfRows(await whole.sequence(ids, length));
      expect(new Set(alone).size).toBeGreaterThan(1);
      for (const chunk of [1, 7]) {
        expect(bytesOfRows(await whole.sequence(ids, chunk)), `chunks of ${chunk}`).toEqual(alone);
      }

      const active = Harness.tiny(backend, weights, { capacity, maxRows: 7, kv, mode: 'active' });
      expect(bytesOfRows(await active.sequence(ids, 7)), 'active rows').toEqual(alone);

      const batch = Harness.tiny(backend, weights, { capacity, maxRows: 8, slots: 4, kv, mode: 'active' });
      const sequences = [others[0]!, others[1]!, ids, others[2]!];
      const batched: Float32Array[] = [];
      // Sequences start at different times, so that a batch mixes prompts' chunks and single tokens.
      const starts = [0, 2, 5, 9];
      for (let step = 0; step < length + 9; step++) {
        const rows = sequences.flatMap((tokens, slot) => {
          const position = step - starts[slot]!;
          const tokenId = tokens[position];
          return tokenId === undefined ? [] : [{ slot, position, tokenId }];
        });
        const wanted = rows.flatMap((row, index) => (row.slot === 2 ? [index] : []));
        batched.push(...(await batch.run(rows, wanted, 'decode')));
      }
      expect(bytesOfRows(batched), 'a batch of 4').toEqual(alone);
    },
  );

  it('gives logits in the order asked for', async () => {
    const harness = Harness.tiny(backend, weights, { capacity, maxRows: 6, maxLogitsRows: 4 });
    const rows = ids.slice(0, 6).map((tokenId, position) => ({ slot: 0, position, tokenId }));
    const all = bytesOfRows(await harness.run(rows, [0, 1, 2, 3]));
    const last = bytesOfRows(await harness.run(rows, [4, 5]));
    const every = [...all, ...last];
    const picked = bytesOfRows(await harness.run(rows, [5, 0, 3, 3]));
    expect(picked).toEqual([every[5], every[0], every[3], every[3]]);
  });
});
