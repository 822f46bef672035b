import { afterAll, beforeAll, expect, describe as group, test } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { describe, optConfig } from './support/opt-shape.js';
import { writePrepared } from './support/prepared-file.js';
import { seededRandom } from './support/random.js';
import { openOracle, openSession, plan } from './support/session.js';
import { type Disturbance, WatchedBackend } from './support/watched-backend.js';

const maxRows = 3;
const shape = { hiddenSize: 12, ffnSize: 1300, layers: 2, heads: 2, vocabSize: 17, maxPositions: 20 };
const description = describe(optConfig(shape), 'f32');
const passes = [
  { kind: 'prefill', ids: [1, 2, 3], wantsHead: false },
  { kind: 'prefill', ids: [4, 5], wantsHead: true },
  { kind: 'decode', ids: [6], wantsHead: true },
  { kind: 'decode', ids: [7], wantsHead: true },
] as const;

let oracle: Backend;
let prepared: PreparedModel;
let expected: Uint8Array[];
beforeAll(async () => {
  oracle = await openOracle();
  prepared = writePrepared(description, 3, (_, neuron) => (neuron % 3 === 0 ? 'off' : 'on'));
  expected = await outputs(oracle, 'resident', Infinity);
});
afterAll(async () => {
  await prepared.close();
  await oracle.close();
});

async function outputs(backend: Backend, policy: Parameters<typeof plan>[1], budgetBytes: number) {
  const session = await openSession(
    backend,
    prepared,
    plan(prepared, policy, maxRows, { budgetBytes, retain }),
  );
  const drive = session.drive();
  const results: Uint8Array[] = [];
  for (const { kind, ids, wantsHead } of passes) results.push(await drive.pass(kind, ids, wantsHead));
  drive.close();
  await session.source.close();
  return results;
}

function randomDelay(seed: number): () => Promise<void> {
  const random = seededRandom(seed);
  return () => new Promise((resolve) => setTimeout(resolve, random() < 0.5 ? 0 : random() * 3));
}

const budgets = ['minimum', 'a little more', 'half'] as const;

/** Fewer places than active rows, so that rows are evicted and packet rows used beside them. */
const retain = { kind: 'lru', rowsPerMatrix: 150 } as const;
const moving = ['stream', 'packets', 'phase', 'extents', 'packets-staged', 'retention', 'forecast'] as const;

function budgetOf(policy: (typeof moving)[number], budget: (typeof budgets)[number]): number {
  const { minimumBytes } = plan(prepared, policy, maxRows, { retain });
  const full = plan(prepared, 'resident', maxRows).totalBytes;
  if (budget === 'minimum') return minimumBytes;
  return minimumBytes + Math.floor(Math.max(0, full - minimumBytes) * (budget === 'half' ? 0.5 : 0.2));
}

group('reads beside computing', () => {
  test.each(moving.flatMap((policy) => budgets.map((budget) => [policy, budget] as const)))(
    '%s at the %s budget: no byte is touched in use, whatever is slow',
    async (policy, budget) => {
      const slowReads = { delay: randomDelay(5) };
      for (const disturbance of [slowReads, { delay: randomDelay(6) }] satisfies Disturbance[]) {
        const backend = new WatchedBackend(oracle, disturbance);
        const results = await outputs(backend, policy, budgetOf(policy, budget));
        expect(backend.races).toEqual([]);
        for (const [index, result] of results.entries()) {
          expect(Buffer.compare(result, expected[index]!), `pass ${index}`).toBe(0);
        }
        // Rows alone overlap where one round is read while another is computed, or by guesses; a staged packet never does.
        const dense = policy === 'stream' || policy === 'phase';
        if (dense || policy === 'forecast' || budget === 'minimum')
          expect(backend.overlaps).toBeGreaterThan(0);
      }
    },
  );

  test.each(['early', 'late'] as const)('guesses are read %s', async (forecast) => {
    const backend = new WatchedBackend(oracle, {
      delay: () => new Promise((resolve) => setTimeout(resolve, 1)),
    });
    const session = await openSession(backend, prepared, plan(prepared, 'forecast', maxRows, { forecast }));
    const drive = session.drive();
    await drive.pass('prefill', [1, 2]);
    const ofPrefill = session.ledger.totals().movedRows;
    expect(ofPrefill['forecast-used'] + ofPrefill['forecast-wasted']).toBe(0); // a prompt guesses nothing
    backend.events.length = 0;
    await drive.pass('decode', [1]);
    // One guess and one read on demand a layer; an active set is known when its compaction has ended.
    const readsBefore = [0, 1].map((layer) => {
      const known = backend.events.indexOf(`op end layers.${layer}.second.active`);
      return backend.events.slice(0, known).filter((event) => event === 'read begin row arena 0').length;
    });
    expect(readsBefore).toEqual(forecast === 'early' ? [1, 3] : [0, 2]);
    const { movedRows } = session.ledger.totals();
    expect(movedRows['forecast-used']).toBeGreaterThan(0);
    drive.close();
    await session.source.close();
  });

  test('a stream reads the next piece while one is computed, and the next pass before this one ends', async () => {
    const backend = new WatchedBackend(oracle, {
      delay: () => new Promise((resolve) => setTimeout(resolve, 1)),
    });
    const placement = plan(prepared, 'stream', maxRows);
    const session = await openSession(backend, prepared, placement);
    const drive = session.drive();
    backend.events.length = 0;
    await drive.pass('decode', [1]);
    const lastOpEnd = backend.events.indexOf('op end head');
    const reads = session.records.filter(({ cause }) => cause === 'dense-weights');
    expect(lastOpEnd).toBeGreaterThan(0);
    expect(reads.some(({ pass }) => pass === 2)).toBe(true);
    // Every slot is filled before the first op ends: reading does not wait for computing.
    const firstOpEnd = backend.events.findIndex((event) => event.startsWith('op end'));
    const readsBefore = backend.events.slice(0, firstOpEnd).filter((event) => event === 'read begin staging');
    expect(readsBefore).toHaveLength(placement.staging!.slots);
    drive.close();
    await session.source.close();
  });

  test('nothing is read ahead when nothing is expected', async () => {
    const session = await openSession(oracle, prepared, plan(prepared, 'stream', maxRows));
    const drive = session.drive();
    session.source.expect(null);
    await drive.pass('decode', [1]);
    const seconds = shape.layers * shape.ffnSize * shape.hiddenSize * 4;
    expect(session.ledger.totals().moved['dense-weights']).toBe(seconds);
    await drive.pass('decode', [1]);
    await session.source.reset();
    const stats = session.source.stats();
    expect(stats.streamUsedBytes).toBe(2 * seconds);
    expect(stats.streamDroppedBytes).toBeGreaterThan(0);
    expect(session.ledger.totals().moved['dense-weights']).toBe(2 * seconds + stats.streamDroppedBytes);
    drive.close();
    await session.source.close();
  });

  test('what was read ahead of a prompt that did not come is dropped and charged', async () => {
    const placement = plan(prepared, 'phase', maxRows, { keepRows: false });
    const session = await openSession(oracle, prepared, placement);
    const drive = session.drive();
    session.source.expect('prefill');
    await drive.pass('prefill', [1, 2]);
    const ahead = session.records.filter(({ cause, pass }) => cause === 'dense-weights' && pass === 2);
    expect(ahead.length).toBeGreaterThan(0);
    await drive.pass('decode', [3]);
    expect(session.source.stats().streamDroppedBytes).toBe(ahead.reduce((sum, { bytes }) => sum + bytes, 0));
    drive.close();
    await session.source.close();
  });
});

group('after a failed pass', () => {
  const failures: [string, Disturbance][] = [
    ['an op of the first layer', { failsOp: ({ label }) => label === 'layers.0.second' }],
    ['an op of the last layer', { failsOp: ({ label }) => label === 'layers.1.second' }],
    ['an op before any weight', { failsOp: ({ label }) => label === 'add' }],
    ['the second read', { failsTransfer: (number) => number === 1 }],
    ['the fifth read', { failsTransfer: (number) => number === 4 }],
    ['every read', { failsTransfer: () => true }],
  ];
  test.each(
    moving.flatMap((policy) =>
      failures
        // With half the model's bytes a staged packet is one read a layer.
        .filter(([what]) => policy !== 'packets-staged' || what !== 'the fifth read')
        .map(([what, disturbance]) => [policy, what, disturbance] as const),
    ),
  )('%s: %s fails, and the next passes are right', async (policy, _what, failure) => {
    for (const budget of ['minimum', 'half'] as const) {
      const backend = new WatchedBackend(oracle);
      const placement = plan(prepared, policy, maxRows, { budgetBytes: budgetOf(policy, budget), retain });
      const session = await openSession(backend, prepared, placement);
      const drive = session.drive();
      await drive.pass('prefill', passes[0].ids, false);
      let transfers = -1; // counted from the pass that is to fail
      const { failsOp, failsTransfer } = failure;
      backend.disturbance = {
        delay: () => new Promise((resolve) => setTimeout(resolve, 0)),
        ...(failsOp === undefined ? {} : { failsOp }),
        ...(failsTransfer === undefined
          ? {}
          : {
              failsTransfer: () => {
                transfers += 1;
                return failsTransfer(transfers);
              },
            }),
      };
      await expect(drive.pass('decode', [5, 6])).rejects.toMatchObject({ code: 'injected' });
      backend.disturbance = {};
      await session.source.reset();
      await session.source.reset();
      for (const { kind, ids, wantsHead } of passes.slice(1)) {
        const index = passes.findIndex((pass) => pass.ids === ids);
        const result = await drive.pass(kind, ids, wantsHead);
        expect(Buffer.compare(result, expected[index]!), `pass ${index}`).toBe(0);
      }
      expect(backend.races).toEqual([]);
      drive.close();
      await session.source.close();
      expect(session.ledger.totalHeld).toBe(0);
    }
  });

  test('a pass that was left half way is ended by the next one', async () => {
    const session = await openSession(oracle, prepared, plan(prepared, 'stream', maxRows));
    const drive = session.drive();
    await drive.abandon([1, 2]);
    const result = await drive.pass('decode', passes[2].ids);
    expect(Buffer.compare(result, expected[2]!)).toBe(0);
    drive.close();
    await session.source.close();
  });

  test('a failed opening holds nothing', async () => {
    const backend = new WatchedBackend(oracle, { failsTransfer: (number) => number === 3 });
    const placement = plan(prepared, 'packets', maxRows);
    await expect(openSession(backend, prepared, placement)).rejects.toMatchObject({ code: 'injected' });
  });
});
