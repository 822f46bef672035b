import { describe, expect, test } from 'vitest';
import type { HostTier } from '../../src/backend/backend.js';
import type { Session } from '../../src/generate/session.js';
import { bits, complete, withSession } from './models.js';

const prompts = [[5, 6, 7], [9]];

interface Watch {
  /** Read-backs that nobody has taken. */
  waiting: number;
  readonly events: string[];
}

/** Brings logits to the host as a device does: later than the tokens that it chose. */
function bringsLater(session: Session): Watch {
  const watch: Watch = { waiting: 0, events: [] };
  const { backend } = session;
  const submit = backend.submit.bind(backend);
  backend.submit = (ops) => {
    watch.events.push('submit');
    return submit(ops);
  };
  const hostTier: HostTier = {
    directRows: 8,
    mirror: () => Promise.reject(new Error('nothing is mirrored here')),
    readLater: async (source) => {
      const bytes = await backend.read(source);
      watch.waiting += 1;
      return {
        take: () => {
          watch.waiting -= 1;
          watch.events.push('take');
          return bytes;
        },
      };
    },
  };
  Object.assign(backend, { hostTier });
  return watch;
}

describe.each(['opt-f32', 'llama-relu-gqa'])('logits that come later, %s', (layout) => {
  const options = { backend: 'oracle', policy: 'resident-sparse', slots: 2 } as const;

  test('the same tokens and digests, and every row is taken once', async () => {
    const expected = await withSession(layout, options, (session) => complete(session, prompts));
    const sampled = await withSession(layout, options, (session) =>
      complete(session, prompts, { temperature: 0.8, seed: 4 }),
    );
    await withSession(layout, options, async (session) => {
      const watch = bringsLater(session);
      expect((await complete(session, prompts)).map(bits)).toEqual(expected.map(bits));
      expect((await complete(session, [prompts[0]!])).map(bits)).toEqual([bits(expected[0]!)]);
      expect((await complete(session, prompts, { temperature: 0.8, seed: 4 })).map(bits)).toEqual(
        sampled.map(bits),
      );
      expect(watch.waiting).toBe(0);
      for await (const _ of session.generate(prompts, { maxNewTokens: 5 })) break;
      expect(watch.waiting).toBe(0);
    });
  });

  test('the next pass is submitted before anybody looks at the logits', () =>
    withSession(layout, options, async (session) => {
      const watch = bringsLater(session);
      await complete(session, [prompts[0]!]);
      expect(watch.events.slice(-5)).toEqual(['submit', 'take', 'submit', 'take', 'take']);
      expect(watch.events.indexOf('take')).toBeGreaterThan(1);
      const counts = new Map<string, number>();
      for (const event of watch.events) counts.set(event, (counts.get(event) ?? 0) + 1);
      expect(counts.get('take')).toBe(8);
    }));

  test('where the device found no finite largest one, the host looks itself', async () => {
    const expected = await withSession(layout, options, (session) => complete(session, prompts));
    await withSession(layout, options, async (session) => {
      const watch = bringsLater(session);
      const { backend, model } = session;
      const read = backend.read.bind(backend);
      backend.read = async (source) => {
        const bytes = await read(source);
        const { chosen } = model;
        const isChosen = source.buffer === chosen.buffer && source.byteOffset === chosen.byteOffset;
        return isChosen ? new Uint8Array(bytes.byteLength).fill(255) : bytes;
      };
      expect((await complete(session, prompts)).map(bits)).toEqual(expected.map(bits));
      expect(watch.waiting).toBe(0);
    });
  });

  test('a pass that fails leaves no row that nobody takes', async () => {
    const expected = await withSession(layout, options, (session) => complete(session, [prompts[0]!]));
    await withSession(layout, options, async (session) => {
      const watch = bringsLater(session);
      const { backend } = session;
      const submit = backend.submit;
      let left = 3;
      backend.submit = (ops) => (left-- === 0 ? Promise.reject(new Error('injected')) : submit(ops));
      await expect(complete(session, [prompts[0]!])).rejects.toThrow('injected');
      backend.submit = submit;
      expect(watch.waiting).toBe(0);
      expect((await complete(session, [prompts[0]!])).map(bits)).toEqual(expected.map(bits));
      expect(watch.waiting).toBe(0);
    });
  });
});
