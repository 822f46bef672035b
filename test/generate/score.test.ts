import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { scoreTokens } from '../../src/generate/score.js';
import { readGolden } from './golden-runs.js';
import { complete, fixedPrompt, layoutNames, models, withSession } from './models.js';

describe('scoreTokens', () => {
  test.each(layoutNames)(
    '%s: the probability of a last token, against the golden logits of transformers',
    (model) =>
      withSession(model, { kv: 'f32', logitsRows: 4 }, async (session) => {
        const golden = JSON.parse(readFileSync(`${models[model]}/golden.json`, 'utf8')) as {
          ids: number[];
          logits_last: number[];
        };
        const next = 17;
        const score = await scoreTokens(session, [...golden.ids, next], { prefixId: null });
        const sum = golden.logits_last.reduce((total, logit) => total + Math.exp(logit), 0);
        const wanted = golden.logits_last[next]! - Math.log(sum);
        expect(score.logProbabilities).toHaveLength(golden.ids.length);
        // Another implementation, in another order of additions: as near as binary32 gets, not equal
        expect(Math.abs(score.logProbabilities.at(-1)! - wanted)).toBeLessThan(2e-5);
        const mean = -score.logProbabilities.reduce((total, value) => total + value, 0) / golden.ids.length;
        expect(score.meanNegativeLogLikelihood).toBe(mean);
        expect(Math.abs(score.perplexity / Math.exp(mean) - 1)).toBeLessThan(1e-14);
      }),
  );

  test('gives the very logits that generation chose from', async () => {
    const { promptIds, tokenIds, logitsDigests } = readGolden('opt-books-draft').requests[1]!;
    for (const logitsRows of [1, 5, 64])
      await withSession('opt-books-draft', { logitsRows, contextPositions: 160 }, async (session) => {
        const score = await scoreTokens(session, [...promptIds, ...tokenIds], { prefixId: null });
        expect(score.logitsDigests.slice(promptIds.length - 1)).toEqual(logitsDigests);
      });
  });

  test('cuts windows of the context, each after the prefix', () =>
    withSession('opt-f32', { contextPositions: 8, logitsRows: 3 }, async (session) => {
      const ids = fixedPrompt(20, 320);
      const whole = await scoreTokens(session, ids, { prefixId: 2 });
      expect(whole).toMatchObject({ scoredTokens: 20, windows: 3 });
      const parts = [ids.slice(0, 8), ids.slice(8, 16), ids.slice(16)];
      const single = [];
      for (const part of parts)
        single.push(...(await scoreTokens(session, part, { prefixId: 2 })).logProbabilities);
      expect(whole.logProbabilities).toEqual(single);
      expect(await scoreTokens(session, ids, { prefixId: null })).toMatchObject({
        scoredTokens: 17,
        windows: 3,
      });
    }));

  test('refuses too short texts, ends on abort, and leaves the session usable', () =>
    withSession('opt-f32', {}, async (session) => {
      await expect(scoreTokens(session, [5], { prefixId: null })).rejects.toMatchObject({
        code: 'text-too-short',
      });
      await expect(scoreTokens(session, [], { prefixId: 2 })).rejects.toMatchObject({
        code: 'text-too-short',
      });
      const aborted = scoreTokens(session, [5, 6, 7], { prefixId: 2, signal: AbortSignal.abort() });
      await expect(aborted).rejects.toMatchObject({ code: 'interrupted' });
      expect(await complete(session, [[5, 6]])).toHaveLength(1);
      expect(session.kv.freeSlots).toBe(1);
    }));
});
