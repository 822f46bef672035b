import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';
import { openableCpuBackends, oracleBackend } from './backends.js';
import { readValues } from './checkpoint-values.js';
import { bytesOfRows, Harness } from './harness.js';
import { SeededNumbers } from './random.js';
import { llamaConfig, optConfig, tinyWeights } from './tiny-models.js';
import { compareWithGolden } from './trained-golden.js';

const seed = 7;
const path = (relative: string): string => fileURLToPath(new URL(`../../${relative}`, import.meta.url));

const configs = {
  opt: optConfig(),
  'opt, gelu, narrow embeddings': optConfig({ activation: 'gelu', embeddingSize: 24 }),
  'llama, gated ReLU': llamaConfig({ qkvBias: true, ffnBias: true }),
  'llama, SiLU': llamaConfig({ activation: 'silu' }),
  nemotron: llamaConfig({ norm: 'layer', gated: false, activation: 'relu2', rotary: 6, tied: false }),
};

const choices = await openableCpuBackends();

let oracle: Backend;
beforeAll(async () => {
  oracle = await oracleBackend.open();
});
afterAll(() => oracle.close());

describe.each(choices)('$name', (choice) => {
  let backend: Backend;
  beforeAll(async () => {
    backend = await choice.open();
  });
  afterAll(() => backend.close());

  describe.each(Object.entries(configs))('%s', (_name, config) => {
    it.each(['f32', 'f16'] as const)(`gives the oracle's bits (%s KV, seed ${seed})`, async (kv) => {
      const weights = tinyWeights(config, seed);
      const numbers = new SeededNumbers(seed + 1);
      const ids = Array.from({ length: 21 }, () => numbers.index(config.vocabSize));
      const options = { capacity: 24, maxRows: 21, kv } as const;
      const wanted = bytesOfRows(await Harness.tiny(oracle, weights, options).sequence(ids, 21));
      const dense = Harness.tiny(backend, weights, options);
      const active = Harness.tiny(backend, weights, { ...options, mode: 'active' });
      for (const harness of [dense, active]) {
        for (const chunk of [1, 7, 21]) {
          expect(bytesOfRows(await harness.sequence(ids, chunk)), `chunks of ${chunk}`).toEqual(wanted);
        }
      }
    });
  });

  it("gives the oracle's bits on a trained checkpoint", async () => {
    const checkpoint = await openCheckpoint(path('models/reglu-books'));
    try {
      const load = await readValues(checkpoint);
      const ids = [2, 868, 356, 262, 856, 336, 1792, 3512, 290];
      const options = { capacity: 16, maxRows: 9, kv: 'f16', mode: 'active' } as const;
      const rows = async (on: Backend, chunk: number) =>
        bytesOfRows(await new Harness(on, checkpoint.description, load, options).sequence(ids, chunk));
      const wanted = await rows(oracle, 9);
      expect(await rows(backend, 9)).toEqual(wanted);
      expect(await rows(backend, 1)).toEqual(wanted);
    } finally {
      await checkpoint.close();
    }
  });

  it.each(['opt-books-draft', 'opt-books-target', 'reglu-books'])(
    'continues the golden prompts of %s as transformers does',
    async (model) => {
      const golden = {
        cases: path(`test/fixtures/golden/${model}.json`),
        logits: path(`test/fixtures/golden/${model}.safetensors`),
      };
      for (const one of await compareWithGolden(backend, path(`models/${model}`), golden, 128)) {
        expect(one.ids).toEqual(one.goldenIds);
        expect(one.distances.map(({ step }) => step)).toEqual([15]);
        for (const { relativeL2 } of one.distances) expect(relativeL2).toBeLessThan(1e-5);
      }
    },
  );
});
