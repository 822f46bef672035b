import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ActivationProfile, makeProfile } from '../../src/acquire/activation-profile.js';
import { GuessLearner, guessFeatures } from '../../src/acquire/guess-table.js';
import { hostBytesOf } from '../../src/acquire/mirror-weights.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { withHostTier } from './support/host-tier-oracle.js';
import { describe as describeModel, gatedConfig, optConfig } from './support/opt-shape.js';
import { writePrepared } from './support/prepared-file.js';
import { openOracle, openSession, plan } from './support/session.js';

const maxRows = 12;
const shape = { hiddenSize: 20, ffnSize: 300, layers: 2, heads: 2, vocabSize: 40, maxPositions: 30 };
const passes = [
  { kind: 'prefill', ids: [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], wantsHead: true },
  { kind: 'decode', ids: [5], wantsHead: true },
  { kind: 'decode', ids: [8, 9], wantsHead: true },
] as const;

/** The passes that have expected outputs, then more of one token: rows are found again, and give way. */
const longScript = [
  ...passes,
  ...[4, 7, 7, 31, 12, 4, 5, 9].map((id) => ({ kind: 'decode', ids: [id], wantsHead: true }) as const),
  { kind: 'prefill', ids: [6, 2, 8, 33, 17], wantsHead: false },
  ...[3, 21, 3].map((id) => ({ kind: 'decode', ids: [id], wantsHead: true }) as const),
] as const;

/** Counts that favour some neurons. */
function recordedProfile({ description }: PreparedModel): ActivationProfile {
  const fed = description.matrices.filter(({ role }) => role === 'second' || role === 'up');
  return makeProfile(
    '0'.repeat(64),
    30,
    fed.map(({ id }) => ({
      id,
      counts: Array.from({ length: shape.ffnSize }, (_, neuron) => (neuron % 3 === 0 ? 20 : neuron % 7)),
      repeats: 100,
    })),
  );
}

describe.each([
  ['plain', false],
  ['gated', true],
] as const)('host tier, %s FFN', (_, gated) => {
  let prepared: PreparedModel;
  let backend: Awaited<ReturnType<typeof withHostTier>>;
  beforeAll(async () => {
    const description = describeModel(gated ? gatedConfig(shape) : optConfig(shape), 'f16');
    prepared = writePrepared(description, 5, (layer, neuron) =>
      (neuron * 7 + layer) % 11 === 0 ? 'mixed' : 'off',
    );
    backend = await withHostTier();
  });
  afterAll(async () => {
    await backend.close();
    await prepared.close();
  });

  async function run(policy: PolicyName, budgetBytes: number, hostTier: boolean, hostBudgetBytes = Infinity) {
    const placement = plan(prepared, policy, maxRows, { budgetBytes, hostTier });
    const session = await openSession(backend, prepared, placement, undefined, hostBudgetBytes);
    const drive = session.drive();
    const outputs: Uint8Array[] = [];
    for (const { kind, ids, wantsHead } of passes) outputs.push(await drive.pass(kind, ids, wantsHead));
    drive.close();
    await session.source.close();
    return { outputs, session, placement };
  }

  it.each(['packets', 'phase', 'certified', 'stream'] as const)(
    '%s gives the bytes of the resident model',
    async (policy) => {
      const { outputs: expected } = await run('resident', Infinity, false);
      const least = plan(prepared, policy, maxRows, { hostTier: true }).minimumBytes;
      for (const budgetBytes of [least, least + 20_000]) {
        const { outputs, session, placement } = await run(policy, budgetBytes, true);
        expected.forEach((bytes, index) => {
          expect(Buffer.compare(bytes, outputs[index]!), `${budgetBytes} bytes, pass ${index}`).toBe(0);
        });
        expect(session.ledger.totals().totalHeldPeak).toBe(placement.totalBytes);
        const totals = session.ledger.totals();
        expect(totals.moved['host-mirror']).toBe(hostBytesOf(placement));
        expect(totals.moved.setup).toBeLessThanOrEqual(
          totals.heldPeak['dense-weights'] + totals.heldPeak['low-bit-weights'],
        );
        const stats = session.source.stats();
        const moved = stats.layers.reduce((sum, { movedRows }) => sum + movedRows, 0);
        expect(totals.movedRows['packet-rows'] + totals.movedRows['uncertain-rows']).toBe(moved);
        expect(totals.movedRows['uncertain-rows'] > 0).toBe(policy === 'certified');
        if (policy !== 'stream' && placement.arenas.length > 0) expect(moved).toBeGreaterThan(0);
      }
    },
  );

  it.each([
    ['lru of few places', { kind: 'lru', rowsPerMatrix: 12 }],
    ['lru of more places than rows are active', { kind: 'lru', rowsPerMatrix: 90 }],
    ['hot', 'hot'],
  ] as const)('retained rows, %s: bytes and counts of the path through the host', async (_, kind) => {
    const profile = recordedProfile(prepared);
    const retain = kind === 'hot' ? ({ kind, profile } as const) : kind;
    const { outputs: expected } = await run('resident', Infinity, false);
    const { minimumBytes } = plan(prepared, 'retention', maxRows, { hostTier: true, retain, profile });
    const more = kind === 'hot' ? 30_000 : 0;
    const runs = [];
    for (const hostTier of [false, true]) {
      const placement = plan(prepared, 'retention', maxRows, {
        budgetBytes: minimumBytes + more,
        hostTier,
        retain,
        profile,
      });
      const one = hostTier ? backend : await openOracle();
      const session = await openSession(one, prepared, placement, profile);
      const drive = session.drive();
      const outputs: Uint8Array[] = [];
      for (const { kind: pass, ids, wantsHead } of longScript) {
        outputs.push(await drive.pass(pass, ids, wantsHead));
      }
      expected.forEach((bytes, index) => {
        expect(Buffer.compare(bytes, outputs[index]!), `pass ${index}`).toBe(0);
      });
      const totals = session.ledger.totals();
      expect(totals.totalHeldPeak).toBe(placement.totalBytes);
      const { layers, keptRows } = session.source.stats();
      expect(layers.reduce((sum, { keptHits }) => sum + keptHits, 0)).toBe(
        totals.movedRows['retention-hits'],
      );
      runs.push({ outputs, totals, layers, keptRows, arenas: placement.arenas });
      drive.close();
      await session.source.close();
      if (!hostTier) await one.close();
    }
    const [host, device] = runs as [(typeof runs)[number], (typeof runs)[number]];
    if (kind === 'hot') {
      // The sets on the device take bytes of the hot set, so that fewer rows are hot there.
      expect(device.totals.movedRows['retention-hits']).toBeGreaterThan(0);
    } else {
      for (const cause of ['retention-hits', 'retention-misses'] as const) {
        expect(device.totals.moved[cause]).toBe(host.totals.moved[cause]);
        expect(device.totals.movedRows[cause]).toBe(host.totals.movedRows[cause]);
        expect(device.totals.movedRows[cause]).toBeGreaterThan(0);
      }
      for (const cause of ['retention-slots', 'retention-index'] as const) {
        expect(device.totals.heldPeak[cause]).toBe(host.totals.heldPeak[cause]);
        expect(device.totals.heldPeak[cause]).toBeGreaterThan(0);
      }
      expect(device.keptRows).toBe(host.keptRows);
    }
    device.outputs.forEach((bytes, index) => {
      expect(Buffer.compare(bytes, host.outputs[index]!), `pass ${index}`).toBe(0);
    });
  });

  it('staged packets are scattered by the device, where it can', async () => {
    const { outputs: expected } = await run('resident', Infinity, false);
    const { minimumBytes } = plan(prepared, 'packets-staged', maxRows, { hostTier: true });
    for (const budgetBytes of [minimumBytes, minimumBytes + 20_000]) {
      backend.movedWithin = 0;
      const { outputs, session } = await run('packets-staged', budgetBytes, true);
      expected.forEach((bytes, index) => {
        expect(Buffer.compare(bytes, outputs[index]!), `pass ${index}`).toBe(0);
      });
      const { movedRows, moved } = session.ledger.totals();
      expect(backend.movedWithin).toBeGreaterThan(0);
      expect(backend.movedWithin).toBeLessThanOrEqual(movedRows['packet-rows']);
      expect(moved.indices).toBe(8 * movedRows['packet-rows']);
    }
  });

  it.each(['early', 'late'] as const)(
    'guesses, %s: on the device, with the bytes and counts of guesses by the host',
    async (forecast) => {
      const { outputs: expected } = await run('resident', Infinity, false);
      const runs = [];
      for (const hostTier of [false, true]) {
        const placement = plan(prepared, 'forecast', maxRows, { hostTier, forecast });
        const one = hostTier ? backend : await openOracle();
        const session = await openSession(one, prepared, placement);
        const drive = session.drive();
        const { transfer, submit } = one;
        const labels: string[] = [];
        let transfers = 0;
        one.transfer = (list) => {
          transfers += 1;
          return transfer.call(one, list);
        };
        one.submit = (ops) => {
          labels.push(...ops.map(({ label }) => label));
          return submit.call(one, ops);
        };
        const outputs: Uint8Array[] = [];
        const moves: number[] = [];
        for (const { kind, ids, wantsHead } of longScript) {
          const before = transfers;
          labels.length = 0;
          outputs.push(await drive.pass(kind, ids, wantsHead));
          moves.push(transfers - before);
          const guesses = labels.filter((label) => label.endsWith('.guess'));
          expect(guesses).toHaveLength(
            hostTier && kind === 'decode'
              ? placement.matrices.filter(({ arena }) => arena !== null).length
              : 0,
          );
          for (const guess of guesses) {
            const [at, use] = [guess, guess.replace('.guess', '.active')].map((label) =>
              labels.indexOf(label),
            );
            if (forecast === 'late') expect(use).toBe(at! + 1);
            else expect(at).toBeLessThan(labels.indexOf(guess.replace(/[^.]+\.guess/, 'key')));
          }
        }
        Object.assign(one, { transfer, submit });
        expected.forEach((bytes, index) => {
          expect(Buffer.compare(bytes, outputs[index]!), `pass ${index}`).toBe(0);
        });
        const totals = session.ledger.totals();
        expect(totals.totalHeldPeak).toBe(placement.totalBytes);
        longScript.forEach(({ kind }, pass) => {
          if (kind === 'decode' && hostTier)
            expect(moves[pass]).toBe(placement.tables[0]!.path === 'rows' ? 1 : 0);
        });
        runs.push({ outputs, totals, layers: session.source.stats().layers });
        drive.close();
        await session.source.close();
        if (!hostTier) await one.close();
      }
      const [host, device] = runs as [(typeof runs)[number], (typeof runs)[number]];
      for (const cause of ['forecast-used', 'forecast-wasted', 'packet-rows'] as const) {
        expect(device.totals.moved[cause], cause).toBe(host.totals.moved[cause]);
        expect(device.totals.movedRows[cause]).toBeGreaterThan(0);
      }
      expect(device.layers).toEqual(host.layers);
      device.outputs.forEach((bytes, index) => {
        expect(Buffer.compare(bytes, host.outputs[index]!), `pass ${index}`).toBe(0);
      });
    },
  );

  it('a learned guesser sees the input of a layer on the host, and its rows come by transfers', async () => {
    const { outputs: expected } = await run('resident', Infinity, false);
    const counts = recordedProfile(prepared);
    const tables = counts.matrices.map(({ id }) => ({
      id,
      weights: new GuessLearner(shape.ffnSize).weights(),
    }));
    const guesser = { features: guessFeatures, tables } as const;
    const profile = makeProfile('0'.repeat(64), 30, counts.matrices, guesser);
    const placement = plan(prepared, 'forecast', maxRows, { hostTier: true, guesser: 'residual', profile });
    const session = await openSession(backend, prepared, placement, profile);
    const drive = session.drive();
    for (const [pass, { kind, ids, wantsHead }] of passes.entries()) {
      const output = await drive.pass(kind, ids, wantsHead);
      expect(Buffer.compare(output, expected[pass]!), `pass ${pass}`).toBe(0);
    }
    const totals = session.ledger.totals();
    expect(totals.totalHeldPeak).toBe(placement.totalBytes);
    expect(totals.movedRows['forecast-wasted']).toBeGreaterThan(0);
    expect(session.records.filter(({ cause }) => cause === 'active-set-readback').length).toBeGreaterThan(6);
    expect(session.source.repeats('decode', 1)).toBe(false);
    drive.close();
    await session.source.close();
  });

  it('a pass that fails between lookup and landing leaves no row that is not there', async () => {
    const retain = { kind: 'lru', rowsPerMatrix: 8 } as const;
    const placement = plan(prepared, 'retention', maxRows, { hostTier: true, retain });
    const session = await openSession(backend, prepared, placement);
    const drive = session.drive();
    const ids = passes[0].ids;
    const expected = await drive.pass('prefill', ids);
    const { transfer } = backend;
    let left = 1;
    backend.transfer = async (transfers) => {
      if (left-- === 0) throw new Error('the link is down');
      return transfer(transfers);
    };
    await expect(drive.pass('prefill', [7, 7, 2, 1, 30])).rejects.toThrow('the link is down');
    backend.transfer = transfer;
    await session.source.reset();
    expect(Buffer.compare(await drive.pass('prefill', ids), expected)).toBe(0);
    const decoded = await drive.pass('decode', [9]);
    drive.close();
    await session.source.close();
    const fresh = await openSession(backend, prepared, plan(prepared, 'resident', maxRows));
    const again = fresh.drive();
    expect(Buffer.compare(decoded, await again.pass('decode', [9]))).toBe(0);
    again.close();
    await fresh.source.close();
  });

  it('spare bytes of packets hold whole matrices, which then move no rows', () => {
    const least = plan(prepared, 'packets', maxRows, { hostTier: true }).minimumBytes;
    const second = prepared.description.matrices.find(({ role }) => role === 'second')!;
    const placement = plan(prepared, 'packets', maxRows, {
      hostTier: true,
      budgetBytes: least + 2 * prepared.tensor(second.id).byteLength + 200_000,
    });
    expect(placement.matrices.some(({ paths }) => paths.decode === 'resident-sparse')).toBe(true);
    expect(placement.arenas.every(({ keptRows }) => keptRows === 0)).toBe(true);
  });

  it('refuses what does not fit the host budget, and holds nothing then', async () => {
    const { minimumBytes } = plan(prepared, 'packets', maxRows, { hostTier: true });
    await expect(run('packets', minimumBytes, true, 10)).rejects.toMatchObject({
      name: 'BudgetError',
      code: 'host-budget-exceeded',
    });
  });
});
