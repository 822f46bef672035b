import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { oracleBackend } from './backends.js';
import { compareWithGolden } from './trained-golden.js';

const path = (relative: string): string => fileURLToPath(new URL(`../../${relative}`, import.meta.url));

let backend: Backend;
beforeAll(async () => {
  backend = await oracleBackend.open();
});
afterAll(() => backend.close());

describe.each(['opt-books-draft', 'reglu-books'])('%s on the oracle', (model) => {
  it('continues the golden prompts as transformers does', async () => {
    const golden = {
      cases: path(`test/fixtures/golden/${model}.json`),
      logits: path(`test/fixtures/golden/${model}.safetensors`),
    };
    const comparisons = await compareWithGolden(backend, path(`models/${model}`), golden, 128);
    expect(comparisons.map((one) => one.promptTokens)).toEqual([32, 512]);
    for (const { ids, goldenIds, distances } of comparisons) {
      expect(ids).toEqual(goldenIds);
      expect(distances.map((distance) => distance.step)).toEqual([15]);
      for (const { relativeL2, step } of distances) expect(relativeL2, `step ${step}`).toBeLessThan(1e-5);
    }
  });
});
