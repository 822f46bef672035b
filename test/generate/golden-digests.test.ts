import { existsSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { digestsFile, goldenModels, runGolden } from './golden-runs.js';

/**
 * The digests change only where docs/numerics.md changes; `npx vitest run test/generate/golden-digests -u` writes them
 * again. The file of a new model must be there first, empty: an absent one is no reason to pass.
 */
describe.each(goldenModels)('%s', (model) => {
  test.each(['f16', 'f32'] as const)('gives the recorded bits with a %s cache', async (kv) => {
    const path = digestsFile(model, kv);
    expect(existsSync(path), path).toBe(true);
    await expect(`${JSON.stringify(await runGolden(model, kv), null, 1)}\n`).toMatchFileSnapshot(path);
  });
});
