import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { lowBitNames } from '../../src/checkpoint/low-bit.js';
import { lowBitPlan, openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { CertificateCounter } from '../../src/generate/certificate-counter.js';
import { scoreTokens } from '../../src/generate/score.js';
import { openModel } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';

const folder = mkdtempSync(join(tmpdir(), 'waybill-certified-'));
afterAll(() => rmSync(folder, { recursive: true }));

const prompts = ['The ship left the harbour', 'In the beginning there was', 'A'];

async function digests(model: string, options: Partial<SessionOptions>, texts = prompts) {
  const session = await openModel({
    model: `models/${model}`,
    prepared: join(folder, model),
    contextPositions: 64,
    threads: 2,
    slots: texts.length,
    ...options,
  });
  try {
    const generation = session.generate(texts, { maxNewTokens: 5, ignoreEos: true });
    for await (const _ of generation);
    const { requests, bytes } = generation.outcome;
    const stats = session.source.stats();
    return {
      found: requests.map(({ logitsDigests }) => logitsDigests),
      moved: bytes.moved,
      stats,
      minimumBytes: session.plan.placement.minimumBytes,
      totalBytes: session.plan.placement.totalBytes,
    };
  } finally {
    await session.close();
  }
}

describe.each(['opt-books-target', 'opt-books-draft', 'reglu-books'])('policy certified, %s', (model) => {
  it('gives the digests of resident: formats, kernels, budgets, chunks and batches', async () => {
    const { found } = await digests(model, { policy: 'resident' });
    const least = await digests(model, { policy: 'certified' });
    expect(least.found).toEqual(found);
    expect(least.moved['uncertain-rows']).toBe(0); // everything is held
    for (const [index, lowBit] of lowBitNames.entries()) {
      const kernels = index % 2 === 0 ? 'native' : 'wasm';
      const room = least.totalBytes - least.minimumBytes;
      const budgetBytes = least.minimumBytes + Math.floor((index * room) / 20);
      const prefillChunk = [128, 1, 3, 2, 5][index]!;
      const arm = await digests(model, {
        policy: 'certified',
        lowBit,
        kernels,
        budgetBytes,
        prefillChunk,
      });
      expect(arm.found, lowBit).toEqual(found);
      expect(arm.moved['uncertain-rows'], lowBit).toBeGreaterThan(0);
      const { judgedRows, uncertainRows } = arm.stats.layers.at(-1)!;
      expect(uncertainRows).toBeLessThan(judgedRows);
    }
    const alone = await digests(model, { policy: 'certified', budgetBytes: least.minimumBytes }, [
      prompts[1]!,
    ]);
    expect(alone.found[0]).toEqual(found[1]);
  });

  it('certifies no active neuron of real text', async () => {
    const options = { model: `models/${model}`, prepared: join(folder, model), logitsRows: 8 };
    const session = await openModel({ ...options, policy: 'resident', threads: 1, contextPositions: 64 });
    const models = [];
    for (const name of lowBitNames) {
      const { prepared } = session.plan;
      models.push(await openLowBit(prepared, await lowBitPlan(prepared, name)));
    }
    try {
      const counter = new CertificateCounter(session.backend, models, (id) => session.source.vector(id));
      session.observer = counter.observer;
      const ids = session.encode('The harbour lay still, and nobody had seen the ship since the morning.');
      await scoreTokens(session, ids, { prefixId: null });
      const counts = counter.counts();
      expect(counts.length).toBe(lowBitNames.length * session.plan.prepared.description.config.layers);
      for (const { wronglyCertified, active, uncertain, judged } of counts) {
        expect(wronglyCertified).toBe(0);
        expect(uncertain).toBeGreaterThanOrEqual(active);
        expect(uncertain).toBeLessThan(judged);
      }
    } finally {
      for (const lowBit of models) await lowBit.close();
      await session.close();
    }
  });
});

it('is refused with copies that nobody wrote', async () => {
  const opening = openModel({
    model: 'models/opt-books-draft',
    prepared: join(folder, 'opt-books-draft'),
    policy: 'certified',
    lowBit: 'never-written',
  });
  await expect(opening).rejects.toMatchObject({ code: 'low-bit-missing' });
});
