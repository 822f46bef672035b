import { readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { policies } from '../../src/acquire/policies.js';
import { sha256Hex } from '../../src/base/digest.js';
import { quantisedFormats, quantisedTypes } from '../../src/base/quantised-type.js';
import { openOrPrepare } from '../../src/checkpoint/open-or-prepare.js';
import { openOrQuantise, quantisedMatrices } from '../../src/checkpoint/quantised-copy.js';
import { verifyDerived } from '../../src/checkpoint/verify-derived.js';
import { generateOptions } from '../../src/generate/options.js';
import type { SessionOptions } from '../../src/generate/session-options.js';
import { runPredicate, sessionSubjects } from '../../src/receipt/run-record.js';
import { complete, models, scratch, withSession } from './models.js';

const context = { contextPositions: 64, clampContext: true } as const;
const prompt = [2, 100, 117, 9, 35, 64, 12, 300, 31];

async function digestsOf(model: string, options: Partial<SessionOptions>) {
  return withSession(model, { ...context, ...options }, async (session) => {
    const [outcome] = await complete(session, [prompt], { maxNewTokens: 6 });
    return outcome!.logitsDigests;
  });
}

describe.each(['resident-q8', 'resident-q4'] as const)('%s', (policy) => {
  test.each(['opt-books-draft', 'reglu-books', 'opt-350m-style-post-norm-proj', 'opt-untied'])(
    'gives %s one set of bits on every backend, other ones than exact policies',
    async (model) => {
      const native = await digestsOf(model, { policy, kernels: 'auto' });
      expect(await digestsOf(model, { policy, kernels: 'wasm', prefillChunk: 1, threads: 3 })).toEqual(
        native,
      );
      expect(await digestsOf(model, { policy, backend: 'oracle', prefillChunk: 5 })).toEqual(native);
      expect(await digestsOf(model, { policy: 'resident' })).not.toEqual(native);
    },
    60_000,
  );

  test('says that it is not exact in the plan and the receipt, and holds fewer bytes', async () => {
    const budgetOf = (name: typeof policy | 'resident') =>
      withSession(
        'opt-books-draft',
        { ...context, policy: name },
        async ({ plan: { placement } }) => placement,
      );
    const full = await budgetOf('resident');
    await withSession('opt-books-draft', { ...context, policy }, async (session) => {
      const { placement, options } = session.plan;
      expect([placement.exact, full.exact]).toEqual([false, true]);
      expect(placement.regime).toBe('resident');
      const type = policies[policy].quantised!;
      const paths = new Set(
        placement.matrices.filter(({ role }) => role !== 'head').map(({ paths }) => paths.decode),
      );
      expect([...paths]).toEqual([type]);
      const share = (quantisedFormats[type].bits + (type === 'q4' ? 0.5 : 0)) / 16;
      const second = (id: string, { matrices }: typeof placement) =>
        matrices.find((matrix) => matrix.id === id)!.bytes;
      const held = second('layers.0.second', placement) / second('layers.0.second', full);
      expect(held).toBeGreaterThanOrEqual(share);
      expect(held).toBeLessThan(share * 1.05);
      const generation = session.generate([prompt], { maxNewTokens: 2 });
      for await (const _ of generation);
      const now = new Date();
      const predicate = runPredicate(session, {
        outcome: generation.outcome,
        options: generateOptions({ maxNewTokens: 2 }),
        startedAt: now,
        finishedAt: now,
        salt: new Uint8Array(32),
        includeContent: false,
      });
      expect(predicate).toMatchObject({ policy, exact: false });
      expect(sessionSubjects(session).map(({ name }) => name)).toContain(
        `prepared/quantised/${type}/manifest.json`,
      );
      expect(session.ledger.totals().totalHeldPeak).toBe(placement.totalBytes);
      expect(options.policy).toBe(policy);
    });
  });
});

describe.each(quantisedTypes)('the %s copy', (type) => {
  test('is made once, and anew where it is absent or of other weights; damage is an error', async () => {
    const { prepared } = await openOrPrepare(models['opt-books-draft']!, {
      directory: scratch(`copy-${type}`),
    });
    try {
      const made = async () => {
        let wrote = false;
        const copy = await openOrQuantise(prepared, type, { onProgress: () => (wrote = true) });
        await copy.close();
        return { wrote, digest: copy.manifestDigest };
      };
      const first = await made();
      expect(first.wrote).toBe(true);
      expect(await made()).toEqual({ ...first, wrote: false });
      const inFolder = (name: string) => join(prepared.directory, 'quantised', type, name);
      const text = readFileSync(inFolder('manifest.json'), 'utf8');
      const replaceManifest = (other: string) => {
        writeFileSync(inFolder('manifest.json'), other);
        writeFileSync(inFolder('manifest.sha256'), `${sha256Hex(Buffer.from(other))}  manifest.json\n`);
      };
      for (const spoil of [
        () => rmSync(inFolder('manifest.json')),
        () => rmSync(inFolder('data.bin')),
        () => replaceManifest(text.replace(prepared.manifestDigest, '0'.repeat(64))),
        () => replaceManifest(text.replace('"version":1', '"version":0')),
      ]) {
        spoil();
        expect(await made()).toEqual(first);
      }
      const tensors = quantisedMatrices(prepared.description).length;
      const { byteLength } = JSON.parse(text) as { byteLength: string };
      const whole = { name: `quantised/${type}`, byteLength: Number(byteLength), tensors };
      expect(await verifyDerived(prepared)).toEqual([whole]);
      const bytes = readFileSync(inFolder('data.bin'));
      bytes[100]! ^= 1;
      writeFileSync(inFolder('data.bin'), bytes);
      expect(await made()).toEqual({ ...first, wrote: false }); // opening reads no weights
      await expect(verifyDerived(prepared)).rejects.toMatchObject({ code: 'tensor-digest' });
      truncateSync(inFolder('data.bin'), 100);
      await expect(made()).rejects.toMatchObject({ code: 'weights-size' });
      writeFileSync(inFolder('manifest.json'), `${text} `);
      await expect(made()).rejects.toMatchObject({ code: 'manifest-digest' });
    } finally {
      await prepared.close();
    }
  });
});
