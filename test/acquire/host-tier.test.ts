import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { spanOf } from '../../src/memory/buffers.js';
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

/** The oracle with host memory that its ops can read: what a device offers, in one address space. */
async function withHostTier(): Promise<Backend & { mirrored: number }> {
  const oracle = await openOracle();
  const backend = Object.assign(Object.create(oracle) as Backend, {
    mirrored: 0,
    hostTier: {
      directRows: 4,
      mirror: async (file, position, request) => {
        const buffer = oracle.allocate(request);
        await oracle.transfer([{ file, position, target: spanOf(buffer) }]);
        backend.mirrored += request.byteLength;
        return buffer;
      },
    } satisfies NonNullable<Backend['hostTier']>,
  });
  for (const name of [
    'allocate',
    'release',
    'submit',
    'write',
    'read',
    'transfer',
    'prefetch',
    'close',
  ] as const) {
    Object.assign(backend, { [name]: (oracle[name] as (...values: unknown[]) => unknown).bind(oracle) });
  }
  return backend;
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
        const stats = session.source.stats();
        const moved = stats.layers.reduce((sum, { movedRows }) => sum + movedRows, 0);
        expect(totals.movedRows['packet-rows'] + totals.movedRows['uncertain-rows']).toBe(moved);
        expect(totals.movedRows['uncertain-rows'] > 0).toBe(policy === 'certified');
        if (policy !== 'stream' && placement.arenas.length > 0) expect(moved).toBeGreaterThan(0);
      }
    },
  );

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
