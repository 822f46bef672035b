import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';
import { oracleBackend } from './backends.js';
import { readValues } from './checkpoint-values.js';
import { argmax, bytesOfRows, Harness, relativeL2 } from './harness.js';

/**
 * Agreement with Hugging Face transformers: another order of additions, so a tolerance here, and nowhere else.
 */
const tolerance = 1e-5;

const layouts = fileURLToPath(new URL('../fixtures/layouts/', import.meta.url));

interface LayoutGolden {
  readonly ids: readonly number[];
  readonly logits_last: readonly number[];
  readonly logits_norm_per_position: readonly number[];
  readonly argmax: readonly number[];
}

let backend: Backend;
beforeAll(async () => {
  backend = await oracleBackend.open();
});
afterAll(() => backend.close());

describe.each(readdirSync(layouts))('%s', (name) => {
  it('agrees with transformers at every position', async () => {
    const directory = join(layouts, name);
    const golden = JSON.parse(readFileSync(join(directory, 'golden.json'), 'utf8')) as LayoutGolden;
    const checkpoint = await openCheckpoint(directory);
    try {
      const load = await readValues(checkpoint);
      const options = { capacity: 16, maxRows: 16 };
      const dense = new Harness(backend, checkpoint.description, load, options);
      const logits = await dense.sequence(golden.ids, golden.ids.length);
      expect(relativeL2(logits.at(-1)!, golden.logits_last)).toBeLessThan(tolerance);
      for (const [position, row] of logits.entries()) {
        const wanted = golden.logits_norm_per_position[position]!;
        expect(Math.abs(Math.hypot(...row) - wanted) / wanted).toBeLessThan(tolerance);
      }
      expect(logits.map(argmax)).toEqual(golden.argmax);

      const active = new Harness(backend, checkpoint.description, load, { ...options, mode: 'active' });
      expect(bytesOfRows(await active.sequence(golden.ids, 5))).toEqual(bytesOfRows(logits));
    } finally {
      await checkpoint.close();
    }
  });
});
