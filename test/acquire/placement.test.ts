import fc from 'fast-check';
import { afterAll, beforeAll, expect, describe as group, test } from 'vitest';
import { type PlacementRequest, planPlacement } from '../../src/acquire/plan.js';
import { exactPolicyNames } from '../../src/acquire/policies.js';
import { type PolicyName, policyNames } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import type { LlamaConfig, OptConfig } from '../../src/checkpoint/model-config.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import { describe, emptyPrepared, gatedConfig, optConfig, roleBytes } from './support/opt-shape.js';
import { writePrepared } from './support/prepared-file.js';
import { openOracle, openSession, plan as planOf } from './support/session.js';

const plain = describe(
  optConfig({ hiddenSize: 256, ffnSize: 1024, layers: 4, heads: 4, vocabSize: 500 }),
  'f16',
);
const gated = describe(
  gatedConfig({ hiddenSize: 256, ffnSize: 1024, layers: 4, heads: 4, vocabSize: 500 }),
  'f16',
);
/** Wide enough for staging to be small beside its matrices, as in real models. */
const larger = { hiddenSize: 512, ffnSize: 2048, layers: 10, heads: 4, vocabSize: 1000 };
const largerPlain = describe(optConfig(larger), 'f16');
const largerGated = describe(gatedConfig(larger), 'f16');
const fixed = [
  { label: 'kv cache', cause: 'kv', bytes: 10_000 },
  { label: 'workspace', cause: 'activations', bytes: 3_000 },
] as const;

function plan(description: ModelDescription, policy: PolicyName, extra: Partial<PlacementRequest> = {}) {
  const prepared = emptyPrepared(description);
  const tensor = (id: string) => prepared.tensor(id);
  return planPlacement({ description, tensor, policy, budgetBytes: Infinity, fixed, maxRows: 8, ...extra });
}

/** The least budget from which on a policy has everything but neuron rows resident. */
function leastOf(description: ModelDescription, policy: PolicyName, wanted: string): number {
  let low = plan(description, policy).minimumBytes;
  let high = 256 * 1024 * 1024;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (order(plan(description, policy, { budgetBytes: middle }).regime) >= order(wanted)) high = middle;
    else low = middle + 1;
  }
  return low;
}

const order = (regime: string) => ['A', 'B', 'C', 'resident'].indexOf(regime);

group('regimes', () => {
  test.each([
    ['packets', largerPlain],
    ['phase', largerPlain],
    ['stream', largerPlain],
    ['packets', largerGated],
  ] as const)('%s passes from A through B to C as the budget grows', (policy, description) => {
    const { minimumBytes } = plan(description, policy);
    expect(plan(description, policy, { budgetBytes: minimumBytes }).regime).toBe('A');
    for (const regime of ['B', 'C']) {
      const least = leastOf(description, policy, regime);
      expect(order(plan(description, policy, { budgetBytes: least - 1 }).regime)).toBeLessThan(order(regime));
      expect(plan(description, policy, { budgetBytes: least }).regime).toBe(regime);
    }
  });

  test('the control never holds neuron rows, packets do when all fits', () => {
    expect(plan(plain, 'stream')).toMatchObject({ regime: 'C', gated: false });
    expect(plan(plain, 'stream').moved.denseDecodeBytes).toBe(roleBytes(plain, 'second'));
    expect(plan(gated, 'stream').moved.denseDecodeBytes).toBe(roleBytes(gated, 'up', 'second'));
    expect(plan(plain, 'packets')).toMatchObject({ regime: 'resident' });
    expect(plan(plain, 'packets').moved.expectedBytes).toBe(0);
    expect(plan(plain, 'packets', { keepRows: false })).toMatchObject({ regime: 'C' });
    expect(plan(gated, 'packets', { keepRows: false })).toMatchObject({ regime: 'C', gated: true });
  });

  test('layers that are held and layers that move alternate, wherever the budget ends', () => {
    const total = 25;
    const description = describe(optConfig({ ...larger, layers: total }), 'f16');
    const [least, most] = ['B', 'C'].map((regime) => leastOf(description, 'packets', regime)) as [
      number,
      number,
    ];
    for (const share of [0.1, 0.3, 0.5, 0.7, 0.9]) {
      const budgetBytes = Math.floor(least + share * (most - least));
      const { matrices } = plan(description, 'packets', { budgetBytes });
      const firsts = matrices.filter(({ role }) => role === 'first');
      const paths = firsts.map(({ paths }) => (paths.decode === 'resident' ? 'h' : 'm')).join('');
      const held = paths.replaceAll('m', '').length;
      for (const [one, others] of [
        ['m', held],
        ['h', total - held],
      ] as const) {
        const longest = Math.max(...paths.split(one === 'm' ? 'h' : 'm').map(({ length }) => length));
        expect(longest, `${paths}, ${one}`).toBeLessThanOrEqual(2 * Math.ceil(total / (others + 1)));
      }
    }
  });

  test('pieces that a device streams take the link as long as the host, in budgets of any size', () => {
    const shape = { hiddenSize: 2048, ffnSize: 8192, layers: 24, heads: 32, vocabSize: 1000 };
    const description = describe(optConfig(shape), 'f16');
    const whole = plan(description, 'resident').totalBytes;
    // Where smaller ones would leave room for one matrix more.
    for (const [policy, share] of [
      ['stream', 0.44],
      ['stream', 0.59],
      ['stream', 0.67],
      ['phase', 0.36],
      ['phase', 0.45],
      ['phase', 0.54],
    ] as const) {
      const budgetBytes = Math.floor(share * whole);
      const of = (hostTier: boolean) => plan(description, policy, { budgetBytes, hostTier });
      const { staging, totalBytes, moved } = of(true);
      expect(staging!.slotBytes, `${policy} ${share}`).toBeGreaterThanOrEqual(2 * 1024 * 1024);
      expect(totalBytes).toBeLessThanOrEqual(budgetBytes);
      expect(moved.denseDecodeBytes).toBeLessThan(1.1 * of(false).moved.denseDecodeBytes);
    }
  });

  test('whole-model policies fit exactly, or not at all', () => {
    for (const policy of ['resident', 'resident-sparse'] as const) {
      const { totalBytes, minimumBytes } = plan(plain, policy);
      expect(minimumBytes).toBe(totalBytes);
      expect(plan(plain, policy, { budgetBytes: totalBytes }).totalBytes).toBe(totalBytes);
      expect(() => plan(plain, policy, { budgetBytes: totalBytes - 1 })).toThrowError(
        expect.objectContaining({ code: 'budget-too-small' }),
      );
    }
  });
});

group('figures', () => {
  test('bytes a token and link time follow from what is not resident', () => {
    const link = { denseBytesPerSecond: 1e9, rowBytesPerSecond: 5e8 };
    const streamed = plan(plain, 'stream', { link });
    expect(streamed.predictedMsPerToken).toBe((roleBytes(plain, 'second') / 1e9) * 1000);
    const packets = plan(plain, 'packets', { link, keepRows: false, activeShare: 0.03 });
    expect(packets.moved).toMatchObject({
      activeShare: 0.03,
      activeShareSource: 'given',
      packetNeurons: 4 * 1024,
      packetBytesAtFullActivity: roleBytes(plain, 'second'),
      expectedPacketBytes: Math.round(0.03 * roleBytes(plain, 'second')),
      denseDecodeBytes: 0,
      embeddingBytes: 0,
    });
    expect(packets.predictedMsPerToken).toBe((packets.moved.expectedPacketBytes / 5e8) * 1000);
    expect(plan(plain, 'packets')).toMatchObject({ predictedMsPerToken: null });
    expect(plan(gated, 'packets', { keepRows: false }).moved.packetNeurons).toBe(2 * 4 * 1024);
    const phase = plan(plain, 'phase', { keepRows: false });
    expect(phase.moved.densePrefillBytes).toBe(roleBytes(plain, 'second'));
    expect(phase.moved.denseDecodeBytes).toBe(0);
  });

  test('spare bytes keep rows, an equal share of every layer, and lower the expectation', () => {
    const budgetBytes = leastOf(plain, 'packets', 'C') + 300_000;
    const { matrices, arenas, moved, totalBytes } = plan(plain, 'packets', { budgetBytes });
    const kept = matrices.filter(({ role }) => role === 'second').map(({ keptRows }) => keptRows);
    expect(Math.min(...kept)).toBeGreaterThan(0);
    expect(Math.max(...kept) - Math.min(...kept)).toBeLessThanOrEqual(1);
    expect(arenas[0]!.keptRows).toBe(kept.reduce((sum, rows) => sum + rows, 0));
    const missing = 4 * 1024 - arenas[0]!.keptRows;
    expect(moved.expectedPacketBytes).toBe(Math.round(moved.activeShare * missing * arenas[0]!.rowBytes));
    expect(budgetBytes - totalBytes).toBeLessThan(arenas[0]!.rowBytes);
  });

  test('a placement is frozen, plain JSON, and the same for the same request', () => {
    const placement = plan(gated, 'phase', { budgetBytes: 3_000_000 });
    expect(JSON.parse(JSON.stringify(placement))).toEqual(placement);
    expect(plan(gated, 'phase', { budgetBytes: 3_000_000 })).toEqual(placement);
    expect(Object.isFrozen(placement.matrices[0]!.paths)).toBe(true);
    expect(Object.isFrozen(placement.components)).toBe(true);
    expect(plan(gated, 'phase').budgetBytes).toBeNull();
  });
});

group('budgets', () => {
  test('any budget gives a placement inside it, whose parts add up, and more never moves much more', () => {
    const requests = fc.record({
      description: fc.constantFrom(plain, gated),
      policy: fc.constantFrom(...policyNames),
      budgetBytes: fc.integer({ min: 0, max: 9_000_000 }),
      maxRows: fc.constantFrom(1, 7, 512),
      keepRows: fc.boolean(),
    });
    fc.assert(
      fc.property(requests, ({ description, ...extra }) => {
        const { minimumBytes } = plan(description, extra.policy, { ...extra, budgetBytes: Infinity });
        if (extra.budgetBytes < minimumBytes) {
          expect(() => plan(description, extra.policy, extra)).toThrowError(
            expect.objectContaining({
              code: 'budget-too-small',
              data: expect.objectContaining({ minimumBytes }),
            }),
          );
          return;
        }
        const placement = plan(description, extra.policy, extra);
        expect(placement.totalBytes).toBeLessThanOrEqual(extra.budgetBytes);
        expect(placement.minimumBytes).toBe(minimumBytes);
        expect(placement.components.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(placement.totalBytes);
        expect(placement.components).toEqual(expect.arrayContaining([...fixed]));
        const more = plan(description, extra.policy, { ...extra, budgetBytes: extra.budgetBytes + 200_000 });
        expect(more.moved.expectedBytes).toBeLessThanOrEqual(placement.moved.expectedBytes * (1 + 1 / 31));
      }),
      { numRuns: 80, seed: 1130 },
    );
  });

  test.each([-1, 1.5, Number.NaN])('%d is refused as a budget', (budgetBytes) => {
    expect(() => plan(plain, 'packets', { budgetBytes })).toThrowError(
      expect.objectContaining({ code: 'bad-budget' }),
    );
  });

  test('a refusal lists every component and names the minimum', () => {
    const { minimumBytes } = plan(plain, 'phase');
    for (const budgetBytes of [0, 1, minimumBytes - 1]) {
      let message = '';
      try {
        plan(plain, 'phase', { budgetBytes });
      } catch (error) {
        message = (error as Error).message;
      }
      expect(message).toContain(`in ${budgetBytes} bytes: at least ${minimumBytes} bytes are needed`);
      for (const label of [
        'kv cache 10000',
        'workspace 3000',
        'vectors',
        'staging',
        'packet rows',
        'active set',
      ]) {
        expect(message).toContain(label);
      }
    }
  });
});

group('what packets cannot serve', () => {
  let backend: Backend;
  beforeAll(async () => {
    backend = await openOracle();
  });
  afterAll(async () => {
    await backend.close();
  });

  const small = { hiddenSize: 8, ffnSize: 140, layers: 2, heads: 2, vocabSize: 17, maxPositions: 20 };
  const smallGated = { ...small, ffnSize: 150 };

  async function outputs(description: ModelDescription, policy: PolicyName, nonFinite: readonly string[]) {
    const prepared = writePrepared(description, 9, () => 'mixed', new Set(nonFinite));
    const { minimumBytes } = planOf(prepared, policy, 3);
    const placement = planOf(prepared, policy, 3, { budgetBytes: minimumBytes });
    const session = await openSession(backend, prepared, placement);
    const drive = session.drive();
    const results = [await drive.pass('prefill', [1, 2, 3]), await drive.pass('decode', [4])];
    drive.close();
    await session.source.close();
    await prepared.close();
    return { placement, bytes: Buffer.concat(results), records: session.records };
  }

  test.each([
    ['layers.0.second', optConfig(small)],
    ['layers.1.up', gatedConfig(smallGated)],
    ['layers.0.second', gatedConfig(smallGated)],
  ] as const)(
    '%s with an infinity is acquired densely, and its NaN reaches the result',
    async (id, config) => {
      const description = describe(config, 'f32');
      const reference = await outputs(description, 'resident', [id]);
      for (const policy of ['packets', 'phase', 'stream', 'resident-sparse'] as const) {
        const { placement, bytes, records } = await outputs(description, policy, [id]);
        expect(bytes.equals(reference.bytes), policy).toBe(true);
        const placed = placement.matrices.find((matrix) => matrix.id === id)!;
        expect(placed.denseReason).toBe('non-finite-weights');
        expect(['resident', 'streamed']).toContain(placed.paths.decode);
        expect(records.some((record) => record.id === id && record.cause === 'packet-rows')).toBe(false);
      }
    },
  );

  test.each([
    { ...optConfig(small), activation: 'gelu' } satisfies OptConfig,
    { ...gatedConfig(smallGated), activation: 'silu' } satisfies LlamaConfig,
  ])('a model with dense activations runs under every policy', async (config) => {
    const sparse = describe(config, 'f32');
    const description: ModelDescription = {
      ...sparse,
      matrices: sparse.matrices.map((matrix) =>
        matrix.role === 'up' ? { ...matrix, layout: 'input-major', neuronAxis: null } : matrix,
      ),
    };
    const reference = await outputs(description, 'resident', []);
    for (const policy of exactPolicyNames) {
      const { placement, bytes } = await outputs(description, policy, []);
      expect(bytes.equals(reference.bytes), policy).toBe(true);
      for (const { role, denseReason, paths } of placement.matrices) {
        expect(denseReason).toBe(role === 'up' || role === 'second' ? 'dense-activation' : null);
        expect(['resident', 'streamed']).toContain(paths.decode);
      }
    }
  });

  test('layers of two types keep their rows apart', async () => {
    const base = describe(optConfig(small), 'f32');
    const description: ModelDescription = {
      ...base,
      matrices: base.matrices.map((matrix) =>
        matrix.id === 'layers.1.second' ? { ...matrix, type: 'f16' } : matrix,
      ),
    };
    const reference = await outputs(description, 'resident', []);
    const { placement, bytes } = await outputs(description, 'packets', []);
    expect(placement.arenas.map(({ type }) => type)).toEqual(['f32', 'f16']);
    expect(bytes.equals(reference.bytes)).toBe(true);
  });
});
