import { describe, expect, test } from 'vitest';
import { planPlacement } from '../../src/acquire/plan.js';
import type { HostTier } from '../../src/backend/backend.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import { logitsDigest } from '../../src/base/digest.js';
import { greedyOfFinite, greedyToken } from '../../src/generate/sampler.js';
import { openSession, planSession, type Session } from '../../src/generate/session.js';
import { spanOf } from '../../src/memory/buffers.js';
import { bits, complete, layoutNames, models, withSession } from './models.js';

const prompts = [[5, 6, 7], [9]];

/** Every list of ops that the session submits from now on. */
function watchSubmissions(session: Session): (readonly PlacedOp[])[] {
  const lists: (readonly PlacedOp[])[] = [];
  const { backend } = session;
  const submit = backend.submit.bind(backend);
  backend.submit = (ops) => {
    lists.push(ops);
    return submit(ops);
  };
  return lists;
}

describe('passes that come again', () => {
  test.each(layoutNames)('give the bits of passes that are emitted anew, %s', (layout) =>
    withSession(layout, { policy: 'resident-sparse', slots: 2 }, async (session) => {
      session.observer = async () => {}; // an observed pass is emitted op by op
      const expected = await complete(session, prompts);
      session.observer = null;
      const lists = watchSubmissions(session);
      const first = await complete(session, prompts);
      const before = lists.length;
      const again = await complete(session, [prompts[1]!, prompts[0]!]);
      expect(first.map(bits)).toEqual(expected.map(bits));
      expect(again.map(bits).reverse()).toEqual(expected.map(bits));
      // From the second pass of a shape on, the very list of the first.
      const decodes = lists.slice(before);
      expect(new Set(decodes.slice(1)).size).toBe(1);
      expect(Object.isFrozen(decodes.at(-1))).toBe(true);
      expect(session.recorded.find({ kind: 'decode', rows: [], logitsRows: [] })).toBeNull();
    }),
  );

  test('each size of a batch has its own', () =>
    withSession('opt-f32', { policy: 'resident', slots: 3 }, async (session) => {
      const batch = [[5, 6, 7], [9], [3, 1]];
      const lists = watchSubmissions(session);
      const alone = [];
      for (const prompt of batch) alone.push(...(await complete(session, [prompt])));
      const count = lists.length;
      const together = await complete(session, batch);
      expect(together.map(bits)).toEqual(alone.map(bits));
      expect(new Set(lists.slice(0, count)).size).toBeGreaterThan(2);
    }));

  test.each(['packets', 'stream'] as const)('never where weights move within them: %s', (policy) =>
    withSession(
      'opt-books-draft',
      { policy, budgetBytes: 3_400_000, contextPositions: 160 },
      async (session) => {
        const lists = watchSubmissions(session);
        await complete(session, [[5, 6, 7]]);
        expect(new Set(lists).size).toBe(lists.length);
        expect(lists.some((list) => Object.isFrozen(list))).toBe(false);
      },
    ),
  );

  test.each(['opt-books-draft', 'reglu-books'])(
    'rows read from host memory are charged in each, %s',
    async (model) => {
      const plan = await planSession({ model: models[model]!, policy: 'packets', contextPositions: 64 });
      const { backend } = plan;
      const hostTier: HostTier = {
        directRows: 4,
        mirror: async (file, position, request) => {
          const buffer = backend.allocate(request);
          await backend.transfer([{ file, position, target: spanOf(buffer) }]);
          return buffer;
        },
      };
      const asked = { ...plan.request, hostTier: true };
      // A little less than everything: second projections are the first to move.
      const whole = planPlacement({ ...asked, budgetBytes: Infinity }).totalBytes;
      const request = { ...asked, budgetBytes: whole - plan.prepared.tensor('layers.0.second').byteLength };
      const session = await openSession({
        ...plan,
        options: { ...plan.options, budgetBytes: request.budgetBytes },
        backend: Object.assign(backend, { hostTier }),
        request,
        placement: planPlacement(request),
      });
      try {
        const run = async () => {
          const generation = session.generate([[5, 6, 7]], { maxNewTokens: 8, ignoreEos: true });
          for await (const _ of generation);
          const { requests, bytes } = generation.outcome;
          return { bits: bits(requests[0]!), moved: bytes.moved, rows: bytes.movedRows };
        };
        session.observer = async () => {};
        const expected = await run();
        session.observer = null;
        const lists = watchSubmissions(session);
        expect(await run()).toEqual(expected);
        expect(await run()).toEqual(expected);
        expect(expected.rows['packet-rows']).toBeGreaterThan(0);
        expect(new Set(lists.slice(-7)).size).toBe(1);
      } finally {
        await session.close();
      }
    },
  );

  test('a pass that fails is not kept, and later ones are right', () =>
    withSession('opt-f32', { policy: 'resident' }, async (session) => {
      const expected = await complete(session, [prompts[0]!]);
      const { backend } = session;
      const submit = backend.submit.bind(backend);
      let left = 3;
      backend.submit = (ops) => (left-- === 0 ? Promise.reject(new Error('injected')) : submit(ops));
      await expect(complete(session, [prompts[0]!])).rejects.toThrow('injected');
      backend.submit = submit;
      expect((await complete(session, [prompts[0]!])).map(bits)).toEqual(expected.map(bits));
    }));
});

describe('digests of logits', () => {
  test('are those of the rows, whoever asks first', () =>
    withSession('opt-f32', { policy: 'resident' }, async (session) => {
      const rows: string[] = [];
      const generation = session.generate(
        [prompts[0]!],
        { maxNewTokens: 6, ignoreEos: true },
        {
          onLogits: (_request, _index, logits) => {
            rows.push(logitsDigest(logits));
            logits.fill(0); // the row is the callee's
          },
        },
      );
      const events: string[] = [];
      for await (const event of generation) if (event.index % 2 === 0) events.push(event.logitsDigest);
      const { logitsDigests } = generation.outcome.requests[0]!;
      expect(logitsDigests).toEqual(rows);
      expect(events).toEqual(rows.filter((_, index) => index % 2 === 0));
      const [plain] = await complete(session, [prompts[0]!], { maxNewTokens: 6 });
      expect(plain!.logitsDigests).toEqual(rows);
    }));

  test('are computed beside the pass that follows', () =>
    withSession('opt-f32', { policy: 'resident' }, async (session) => {
      const generation = session.generate([prompts[0]!], { maxNewTokens: 3, ignoreEos: true });
      const tokens = generation[Symbol.asyncIterator]();
      const { value: first } = await tokens.next();
      const row = Object.getOwnPropertyDescriptor(first, 'logitsDigest');
      expect(row!.get).toBeTypeOf('function');
      await tokens.next();
      for (let done = false; !done; ) done = (await tokens.next()).done === true;
      expect(first!.logitsDigest).toBe(generation.outcome.requests[0]!.logitsDigests[0]);
    }));
});

test('one reading of a row gives the greedy token, and finds what is no number', () => {
  for (let length = 1; length < 12; length += 1) {
    for (let at = 0; at < length; at += 1) {
      const row = Float32Array.from({ length }, (_, id) => -id - 1);
      row[at] = 5;
      expect(greedyOfFinite(row, 3)).toBe(greedyToken(row));
      for (const value of [Number.NaN, Infinity, -Infinity]) {
        row[at] = value;
        expect(() => greedyOfFinite(row, 3)).toThrow(`position 3: the logit of id ${at} is ${value}`);
      }
    }
  }
  expect(greedyOfFinite(Float32Array.of(-3, 7, 7, 7, 7), 0)).toBe(1);
  expect(greedyOfFinite(Float32Array.of(-0, 0), 0)).toBe(0);
});
