import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import type { Op, PlacedOp } from '../../src/backend/ops.js';
import { compareOpTraces } from '../../src/generate/op-diff.js';
import { openSession, planSession } from '../../src/generate/session.js';
import { models } from './models.js';

const prompt = [5, 6, 7, 8, 9, 10, 11, 12, 13];
const products: readonly Op['kind'][] = ['linear', 'active-inputs', 'active-outputs'];

/** A CPU that says it computes in native numerics, and keeps the ops that it was given. */
function claimingNative(backend: Backend, seen: Op[]): Backend {
  return new Proxy(backend, {
    get(target, name) {
      if (name === 'info') return { ...target.info, numerics: 'native' };
      if (name === 'submit')
        return (ops: readonly PlacedOp[]) => {
          seen.push(...ops.map(({ op }) => op));
          return target.submit(ops);
        };
      const value = target[name as keyof Backend];
      return typeof value === 'function' ? (value as (...all: unknown[]) => unknown).bind(target) : value;
    },
  });
}

test.each([
  ['opt-books-draft', 'packets', 1],
  ['opt-books-draft', 'phase', 4],
  ['reglu-books', 'packets', 128],
  ['reglu-books', 'resident-sparse', 2],
] as const)(
  '%s, %s: prompts in native numerics, new tokens in portable ones, chunks of %d',
  async (name, policy, prefillChunk) => {
    const model = models[name]!;
    const sized = await planSession({ model, backend: 'cpu', policy, prefillChunk });
    const budgetBytes = policy === 'resident-sparse' ? Infinity : sized.placement.minimumBytes;
    await sized.backend.close();
    await sized.prepared.close();
    const plan = await planSession({ model, backend: 'cpu', policy, prefillChunk, budgetBytes });
    const seen: Op[] = [];
    const session = await openSession({ ...plan, backend: claimingNative(plan.backend, seen) });
    try {
      const generation = session.generate([prompt], { maxNewTokens: 4, ignoreEos: true });
      const ofPass: { prompt: boolean; ops: Op[] }[] = [];
      let first = true;
      for await (const _ of generation) {
        ofPass.push({ prompt: first, ops: seen.splice(0) });
        first = false;
      }
      expect(ofPass).toHaveLength(4);
      for (const { prompt, ops } of ofPass) {
        const modes = ops
          .filter(({ kind }) => products.includes(kind))
          .map((op) => 'numerics' in op && op.numerics);
        expect(modes.length).toBeGreaterThan(4);
        expect(new Set(modes)).toEqual(new Set([prompt ? 'native' : false]));
      }
    } finally {
      await session.close();
    }
  },
);

test('op records of different modes are not compared', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-ops-'));
  const record = {
    sequence: 0,
    pass: 1,
    label: 'head',
    kind: 'linear',
    sha256: 'a'.repeat(64),
    byteOffset: 0,
    byteLength: 0,
  };
  const [portable, native] = ['portable', 'native'].map((name) => join(folder, name)) as [string, string];
  for (const [path, more] of [
    [portable, {}],
    [native, { numerics: 'native' }],
  ] as const) {
    await mkdir(path);
    await writeFile(join(path, 'ops.jsonl'), `${JSON.stringify({ ...record, ...more })}\n`);
    await writeFile(join(path, 'values.bin'), '');
  }
  await expect(compareOpTraces(portable, native)).rejects.toMatchObject({
    name: 'UsageError',
    code: 'numerics-differ',
    message: expect.stringMatching(
      /^Cannot compare .*the first ran in portable numerics, the second in native/,
    ),
  });
  expect((await compareOpTraces(native, native)).compared).toBe(1);
  await rm(folder, { recursive: true });
});
