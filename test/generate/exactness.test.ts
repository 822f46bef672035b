import { describe, expect, test } from 'vitest';
import { closePlan, planSession } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';
import { goldenModels, newTokens, readGolden } from './golden-runs.js';
import { bits, complete, layoutNames, models, withSession } from './models.js';

const trained = ['opt-books-draft', 'opt-books-target', 'reglu-books'];
const context = { contextPositions: 160, clampContext: true } as const;
type Variant = Partial<SessionOptions> & { readonly tight?: boolean };

/** Continues all golden prompts of a model under `variant`, one by one, and compares with the recorded bits. */
async function expectGolden(model: string, { tight = false, ...variant }: Variant): Promise<void> {
  const options = { ...context, ...variant };
  const budgetBytes = tight ? await minimum(model, options) : Infinity;
  const { requests } = readGolden(model);
  await withSession(model, { ...options, budgetBytes }, async (session) => {
    for (const { promptIds, ...expected } of requests) {
      const [outcome] = await complete(session, [promptIds], { maxNewTokens: newTokens });
      expect(bits(outcome!), JSON.stringify({ model, ...variant, tight })).toEqual(expected);
    }
  });
}

async function minimum(model: string, options: Partial<SessionOptions>): Promise<number> {
  const plan = await planSession({ model: models[model]!, ...options });
  await closePlan(plan);
  return plan.placement.minimumBytes;
}

describe.each(trained)('%s gives the recorded bits', (model) => {
  const everywhere: Variant[] = [
    { policy: 'resident-sparse', threads: 3 },
    { policy: 'stream', tight: true },
    { policy: 'packets', tight: true },
    { policy: 'phase', tight: true, threads: 1 },
    { policy: 'stream', prefillChunk: 1000 },
  ];
  // The small ones are enough for what takes long
  const small: Variant[] = [
    { policy: 'packets', tight: true, kernels: 'wasm', threads: 2 },
    { policy: 'resident', kernels: 'wasm', threads: 1 },
    { policy: 'phase', prefillChunk: 7, tight: true },
    { policy: 'packets', prefillChunk: 1, tight: true },
  ];
  test.each(model === 'opt-books-target' ? everywhere : [...everywhere, ...small])('%j', (variant) =>
    expectGolden(model, variant),
  );

  test('half way between the least and the whole', async () => {
    const options = { ...context, policy: 'packets' as const };
    const least = await minimum(model, options);
    const whole = await minimum(model, { ...context, policy: 'resident' });
    const budgetBytes = Math.floor((least + whole) / 2);
    await expectGolden(model, { policy: 'packets', budgetBytes } as Variant);
  });

  test('in a batch of four, also in chunks that mix prompts, and after a cancelled one', async () => {
    const { requests } = readGolden(model);
    const prompts = requests.map(({ promptIds }) => promptIds);
    const expected = requests.map(({ promptIds: _, ...rest }) => rest);
    for (const variant of [{ prefillChunk: 128 }, { prefillChunk: 9, policy: 'packets' as const }]) {
      const budgetBytes = await minimum(model, { ...context, ...variant, slots: 4 });
      await withSession(model, { ...context, ...variant, slots: 4, budgetBytes }, async (session) => {
        const abort = new AbortController();
        const cancelled = session.generate([prompts[3]!, prompts[1]!], {}, { signal: abort.signal });
        await expect(
          (async () => {
            for await (const { index } of cancelled) if (index === 1) abort.abort();
          })(),
        ).rejects.toMatchObject({ code: 'interrupted' });
        const outcomes = await complete(session, prompts, { maxNewTokens: newTokens });
        expect(outcomes.map(bits)).toEqual(expected);
        const reversed = await complete(session, [...prompts].reverse(), { maxNewTokens: newTokens });
        expect(reversed.map(bits)).toEqual([...expected].reverse());
      });
    }
  });
});

describe.each(layoutNames)('%s gives the recorded bits', (model) => {
  test('by the oracle, by every policy in the least bytes, by WebAssembly', async () => {
    const variants: Variant[] = [
      { backend: 'oracle' },
      { backend: 'oracle', policy: 'packets', tight: true, prefillChunk: 3 },
      { policy: 'resident-sparse', threads: 1 },
      { policy: 'stream', tight: true, prefillChunk: 1 },
      { policy: 'packets', tight: true, prefillChunk: 7 },
      { policy: 'packets', tight: true, kernels: 'wasm', threads: 2 },
    ];
    for (const variant of variants) await expectGolden(model, variant);
  });
});

test('every golden model has a recorded f32 run that differs from its f16 run', () => {
  for (const model of goldenModels)
    expect(readGolden(model, 'f32').requests).not.toEqual(readGolden(model).requests);
});
