import { writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parseProfile, profileText } from '../../src/acquire/activation-profile.js';
import { ActivationCounter } from '../../src/generate/activation-counter.js';
import { closePlan, planSession } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';
import { newTokens, readGolden } from './golden-runs.js';
import { bits, complete, models, scratch, withSession } from './models.js';

const context = { contextPositions: 160, clampContext: true } as const;

/** Counts the rows that the golden prompts of a model need, and writes them down. */
async function recordProfile(model: string): Promise<{ path: string; tokens: number; active: number }> {
  const path = scratch(`${model}.profile.json`);
  return withSession(model, { ...context, policy: 'packets' }, async (session) => {
    const counter = new ActivationCounter(session.plan.prepared.description);
    session.observer = counter.observer;
    for (const { promptIds } of readGolden(model).requests.slice(0, 2)) {
      await complete(session, [promptIds], { maxNewTokens: newTokens });
    }
    session.observer = null;
    const profile = counter.profile(session.plan.prepared.sourceDigest);
    writeFileSync(path, profileText(profile));
    expect(parseProfile(profileText(profile), path)).toEqual(profile);
    const active = profile.matrices.flatMap(({ counts }) => counts).reduce((sum, uses) => sum + uses, 0);
    return { path, tokens: profile.tokens, active };
  });
}

describe.each(['opt-books-draft', 'reglu-books'])('%s', (model) => {
  test('gives the recorded bits by every policy that moves rows', async () => {
    const { path, tokens } = await recordProfile(model);
    const requests = readGolden(model).requests.slice(0, 2);
    // The last token of a run is chosen and never fed.
    const fed = requests.reduce((sum, { promptIds }) => sum + promptIds.length + newTokens - 1, 0);
    expect(tokens).toBe(fed);
    const variants: Partial<SessionOptions>[] = [
      { policy: 'extents' },
      { policy: 'packets-staged' },
      { policy: 'retention', retain: 'lru:40' },
      { policy: 'retention', retain: 'hot:auto', profile: path },
      { policy: 'forecast', forecast: 'early' },
      { policy: 'forecast', forecast: 'late', kernels: 'wasm' },
    ];
    for (const variant of variants) {
      const options = { ...context, ...variant, prefillChunk: 5 };
      const plan = await planSession({ model: models[model]!, ...options });
      await closePlan(plan);
      const budgetBytes = Math.floor(1.1 * plan.placement.minimumBytes);
      await withSession(model, { ...options, budgetBytes }, async (session) => {
        for (const { promptIds, ...expected } of requests) {
          const [outcome] = await complete(session, [promptIds], { maxNewTokens: newTokens });
          expect(bits(outcome!), JSON.stringify(variant)).toEqual(expected);
        }
        expect(session.ledger.totals().totalHeldPeak).toBeLessThanOrEqual(budgetBytes);
      });
    }
  });

  test('guesses from the residual change no bit, and used, wasted and completed rows add up', async () => {
    const path = scratch(`${model}.guesser.json`);
    const [request] = readGolden(model).requests;
    const { promptIds, ...expected } = request!;
    await withSession(model, { ...context, policy: 'packets' }, async (session) => {
      const counter = new ActivationCounter(session.plan.prepared.description, true);
      session.observer = counter.observer;
      await complete(session, [promptIds], { maxNewTokens: newTokens });
      session.observer = null;
      writeFileSync(path, profileText(counter.profile(session.plan.prepared.sourceDigest)));
    });
    const moved = async (more: Partial<SessionOptions>) => {
      const options = {
        ...context,
        policy: 'forecast',
        guesser: 'residual',
        profile: path,
        ...more,
      } as const;
      const plan = await planSession({ model: models[model]!, ...options });
      await closePlan(plan);
      const budgetBytes = Math.floor(1.2 * plan.placement.minimumBytes);
      return withSession(model, { ...options, budgetBytes }, async (session) => {
        const [outcome] = await complete(session, [promptIds], { maxNewTokens: newTokens });
        expect(bits(outcome!)).toEqual(expected);
        const { movedRows } = session.ledger.totals();
        const [used, wasted] = [movedRows['forecast-used'], movedRows['forecast-wasted']];
        const layers = session.source.stats().layers;
        expect(layers.reduce((sum, { guessedUsed }) => sum + guessedUsed, 0)).toBe(used);
        expect(layers.reduce((sum, { guessedWasted }) => sum + guessedWasted, 0)).toBe(wasted);
        expect(used + movedRows['packet-rows']).toBe(
          layers.reduce((sum, { activeRows }) => sum + activeRows, 0),
        );
        return { used, wasted, completed: movedRows['packet-rows'] };
      });
    };
    const early = await moved({ forecast: 'early', prefillChunk: 16 });
    expect(await moved({ forecast: 'late', prefillChunk: 16 })).toEqual(early);
    expect(early.used).toBeGreaterThan(0);
    expect(early.wasted).toBeGreaterThan(0);
    const without = await planSession({
      model: models[model]!,
      policy: 'forecast',
      guesser: 'residual',
    }).catch((error) => error.code);
    expect(without).toBe('no-guess-tables');
  });

  test('a profile counts what packets move', async () => {
    const { active } = await recordProfile(model);
    await withSession(
      model,
      { ...context, policy: 'forecast', forecast: 'late', prefillChunk: 1 },
      async (session) => {
        for (const { promptIds } of readGolden(model).requests.slice(0, 2)) {
          await complete(session, [promptIds], { maxNewTokens: newTokens });
        }
        const stats = session.source.stats().layers;
        expect(stats.reduce((sum, { activeRows }) => sum + activeRows, 0)).toBe(active);
      },
    );
  });
});

test.each([
  [{ policy: 'retention', retain: 'lru:none' }, 'bad-option'],
  [{ policy: 'retention', retain: 'hot:auto' }, 'profile-needed'],
  [{ policy: 'retention', retain: 'hot:auto', profile: 'no-such-file' }, 'profile-unreadable'],
] as const)('%j is refused', async (options, code) => {
  const opening = withSession('opt-books-draft', { ...context, ...options }, async () => {});
  await expect(opening).rejects.toMatchObject({ code });
});

test('a model with dense activations has no profile', async () => {
  await withSession('opt-gelu', context, async (session) => {
    const { description } = session.plan.prepared;
    expect(() => new ActivationCounter(description)).toThrowError(
      expect.objectContaining({ code: 'dense-activation' }),
    );
  });
});
