import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { InterruptedError } from '../../src/base/errors.js';
import { generate, openModel } from '../../src/index.js';
import { readGolden } from './golden-runs.js';
import { bits, complete, models, withSession } from './models.js';

const model = 'opt-f32';
const prompt = [5, 6, 7];

async function drain(generation: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _ of generation) count++;
  return count;
}

describe('a generation', () => {
  test('is iterated once', () =>
    withSession(model, {}, async (session) => {
      const generation = session.generate([prompt], { maxNewTokens: 3, ignoreEos: true });
      expect(() => generation.outcome).toThrow(/has not ended/);
      expect(await drain(generation)).toBe(3);
      expect(generation.outcome).toMatchObject({ status: 'completed', prefillPasses: 1, decodePasses: 2 });
      await expect(drain(generation)).rejects.toMatchObject({ code: 'generation-reused' });
    }));

  test('that its reader leaves is interrupted and frees its slots', () =>
    withSession(model, { slots: 2 }, async (session) => {
      const generation = session.generate([prompt, [9]], { ignoreEos: true });
      for await (const { index } of generation) if (index === 2) break;
      expect(generation.outcome.status).toBe('interrupted');
      expect(generation.outcome.requests.map(({ finishReason }) => finishReason)).toEqual([
        'interrupted',
        'interrupted',
      ]);
      expect(session.kv.freeSlots).toBe(2);
      expect(await complete(session, [prompt, [9]])).toHaveLength(2);
    }));

  test('aborted before, within, and after', () =>
    withSession(model, {}, async (session) => {
      const before = session.generate([prompt], {}, { signal: AbortSignal.abort() });
      await expect(drain(before)).rejects.toBeInstanceOf(InterruptedError);
      expect(before.outcome).toMatchObject({ status: 'interrupted', prefillPasses: 0 });
      const controller = new AbortController();
      const within = session.generate([prompt], { ignoreEos: true }, { signal: controller.signal });
      await expect(
        (async () => {
          for await (const { index } of within) if (index === 4) controller.abort();
        })(),
      ).rejects.toMatchObject({ code: 'interrupted' });
      expect(within.outcome.requests[0]!.tokenIds).toHaveLength(5);
      const after = new AbortController();
      const whole = session.generate(
        [prompt],
        { maxNewTokens: 2, ignoreEos: true },
        { signal: after.signal },
      );
      await drain(whole);
      after.abort();
      expect(whole.outcome.status).toBe('completed');
      expect(session.kv.freeSlots).toBe(1);
    }));

  test('that fails leaves a session that gives the same bits as before', () =>
    withSession(
      'opt-books-draft',
      { policy: 'packets', budgetBytes: 3_400_000, contextPositions: 160 },
      async (session) => {
        const { promptIds, ...expected } = readGolden('opt-books-draft').requests[1]!;
        for (const failAt of [1, 2, 5]) {
          let ops = 0;
          session.observer = async () => {
            if (++ops === failAt * 20) throw new Error('an op that fails');
          };
          const generation = session.generate([promptIds], { ignoreEos: true });
          await expect(drain(generation)).rejects.toThrow('an op that fails');
          expect(generation.outcome.status).toBe('failed');
          session.observer = null;
          const [outcome] = await complete(session, [promptIds]);
          expect(bits(outcome!)).toEqual(expected);
        }
      },
    ));

  test('takes prompts and options that can be used, or none', () =>
    withSession(model, { slots: 2, contextPositions: 4 }, async (session) => {
      const code = (make: () => unknown) => {
        try {
          make();
        } catch (error) {
          return (error as { code: string }).code;
        }
        return null;
      };
      expect(code(() => session.generate([]))).toBe('no-prompt');
      expect(code(() => session.generate([[1], [2], [3]]))).toBe('batch-too-large');
      expect(code(() => session.generate([[]]))).toBe('empty-prompt');
      expect(code(() => session.generate([[1, 2, 3, 4, 5]]))).toBe('prompt-too-long');
      expect(code(() => session.generate([[0.5]]))).toBe('bad-token-id');
      expect(code(() => session.generate([prompt], { stop: ['x'] }))).toBe('stop-without-tokenizer');
      expect(code(() => session.generate(['text']))).toBe('tokenizer-missing');
      // A full context still gives the token that its last position chooses
      const generation = generate(session, [1, 2, 3, 4], { ignoreEos: true });
      expect(await drain(generation)).toBe(1);
      expect(generation.outcome.requests[0]!.finishReason).toBe('length');
      expect(session.kv.freeSlots).toBe(2);
    }));
});

describe('a session', () => {
  test('does one thing at a time', () =>
    withSession(model, { slots: 2 }, async (session) => {
      const first = session.generate([prompt], { maxNewTokens: 3, ignoreEos: true })[Symbol.asyncIterator]();
      await first.next();
      await expect(drain(session.generate([prompt]))).rejects.toMatchObject({ code: 'session-busy' });
      await first.return();
      expect(await drain(session.generate([prompt], { maxNewTokens: 3, ignoreEos: true }))).toBe(3);
    }));

  test('closed twice, and while a pass runs', async () => {
    for (const backend of [{ kernels: 'auto' }, { kernels: 'wasm' }, { backend: 'oracle' }] as const) {
      const session = await openModel({ model: models['opt-books-draft']!, ...backend });
      const iterator = session.generate([[2, 100, 524]], { ignoreEos: true })[Symbol.asyncIterator]();
      await iterator.next();
      const pending = iterator.next().then(
        () => null,
        (error: { code: string }) => error.code,
      );
      await Promise.all([session.close(), session.close()]);
      expect([null, 'session-closed']).toContain(await pending);
      await expect(drain(session.generate([prompt]))).rejects.toMatchObject({ code: 'session-closed' });
      expect(session.ledger.totalHeld).toBe(0);
    }
  });
});

describe('the library', () => {
  test('generates from text, from ids, from lists of both', () =>
    withSession('opt-books-draft', { slots: 2, contextPositions: 40 }, async (session) => {
      const text = 'The old house';
      const ids = session.encode(text);
      const run = async (prompts: Parameters<typeof generate>[1]) => {
        const generation = generate(session, prompts, { maxNewTokens: 4 });
        let shown = '';
        for await (const token of generation) shown += token.text;
        return { requests: generation.outcome.requests, shown };
      };
      const one = await run(text);
      expect(one.shown).toBe(one.requests[0]!.text);
      expect((await run(ids)).requests).toEqual(one.requests);
      const two = await run([text, ids]);
      expect(two.requests).toEqual([one.requests[0], one.requests[0]]);
      await expect(drain(generate(session, text, { signal: AbortSignal.abort() }))).rejects.toBeInstanceOf(
        InterruptedError,
      );
      expect(() => generate(session, text, { maxTokens: 4 } as never)).toThrow(/"maxTokens"/);
      expect(() => generate(session, 7 as never)).toThrow(/want text, token ids/);
    }));

  test('opens and closes 30 times without holding on to memory or handles', async () => {
    const cycle = async (): Promise<void> => {
      const session = await openModel({
        model: models['opt-books-draft']!,
        policy: 'packets',
        contextPositions: 64,
      });
      await drain(generate(session, [2, 100, 524], { maxNewTokens: 2, ignoreEos: true }));
      await session.close();
    };
    for (let warm = 0; warm < 5; warm++) await cycle();
    globalThis.gc?.();
    const handles = process.getActiveResourcesInfo().length;
    const before = process.memoryUsage.rss();
    for (let count = 0; count < 30; count++) await cycle();
    globalThis.gc?.();
    // A session holds 3.7 MB outside the JavaScript heap: 30 that were not given back would be 110 MB
    expect(process.memoryUsage.rss() - before).toBeLessThan(60 * 2 ** 20);
    expect(process.getActiveResourcesInfo().length).toBeLessThanOrEqual(handles + 1);
    if (process.platform === 'linux')
      expect(readOpenFiles().filter((path) => path.endsWith('weights.bin'))).toEqual([]);
  });
});

function readOpenFiles(): string[] {
  return readdirSync('/proc/self/fd').flatMap((name) => {
    try {
      return [readlinkSync(`/proc/self/fd/${name}`)];
    } catch {
      return []; // the descriptor of the listing itself
    }
  });
}

test('a process that never closes its session ends by itself', async () => {
  const { spawnSync } = await import('node:child_process');
  const script = `
    import { generate, openModel } from './dist/index.js';
    for (const kernels of ['auto', 'wasm']) {
      const session = await openModel({ model: ${JSON.stringify(models[model])}, kernels });
      for await (const { tokenId } of generate(session, [5, 6], { maxNewTokens: 2, ignoreEos: true })) console.log(tokenId);
    }`;
  const ended = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: 30_000,
  });
  expect(ended).toMatchObject({ status: 0, signal: null, stderr: '' });
  expect(ended.stdout.trim().split('\n')).toHaveLength(4);
  expect(readFileSync('dist/index.js', 'utf8')).toContain('generate');
});
