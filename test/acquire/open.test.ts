import { expect, test } from 'vitest';
import { openWeightSource } from '../../src/acquire/open.js';
import { planPlacement } from '../../src/acquire/plan.js';
import { exactPolicyNames } from '../../src/acquire/policies.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import { openNull } from '../../src/backend/null/open-null.js';
import { Pass } from '../../src/backend/pass.js';
import { Ledger } from '../../src/memory/ledger.js';
import { driver } from './support/driver.js';
import { describe, emptyPrepared, gatedConfig } from './support/opt-shape.js';

const description = describe(
  gatedConfig({ hiddenSize: 128, ffnSize: 512, layers: 3, heads: 4, vocabSize: 200 }),
  'f16',
);
const prepared = emptyPrepared(description);

function parts(policy: PolicyName, room = 0) {
  const request = { description, tensor: prepared.tensor, policy, fixed: [], maxRows: 4 };
  const { minimumBytes } = planPlacement({ ...request, budgetBytes: Infinity });
  const placement = planPlacement({ ...request, budgetBytes: minimumBytes + room });
  return { placement, backend: openNull({ activeRows: () => [] }), ledger: new Ledger(), prepared };
}

// Policies that compute with copies of weights are opened with them elsewhere (certified, quantised).
test.each(exactPolicyNames.filter((policy) => policy !== 'certified'))(
  '%s: progress ends at what is resident, closing gives everything back',
  async (policy) => {
    const options = parts(policy, 30_000);
    const seen: [number, number][] = [];
    const onProgress = (loaded: number, total: number) => seen.push([loaded, total]);
    const source = await openWeightSource({ ...options, onProgress });
    const { placement, ledger, backend } = options;
    const total = ledger.totals().moved.setup;
    expect(seen.at(-1)).toEqual([total, total]);
    expect(seen.every(([loaded], index) => loaded > (seen[index - 1]?.[0] ?? 0))).toBe(true);
    expect(backend.counters.transferBytes).toBe(total);
    expect(ledger.totalHeld).toBe(placement.totalBytes);
    await source.close();
    await source.close();
    expect(ledger.totalHeld).toBe(0);
    expect(backend.counters.heldBytes).toBe(0);
    await expect(source.begin(new Pass(backend), 'decode')).rejects.toMatchObject({ code: 'defect' });
  },
);

test.each(['stream', 'packets', 'phase'] as const)(
  '%s: nothing is allocated or given back in a pass',
  async (policy) => {
    const options = parts(policy, 50_000);
    const backend = openNull({ activeRows: ({ width, pass }) => evens(width).slice(pass) });
    const source = await openWeightSource({ ...options, backend });
    const drive = driver({ description, backend, source, maxRows: 4 });
    await drive.pass('prefill', [1, 2, 3, 4]); // allocates the driver's own activations
    const held = backend.counters.heldBytes;
    await drive.pass('prefill', [5, 6]);
    await drive.pass('decode', [7]);
    await drive.pass('decode', [8]);
    expect(backend.counters.heldBytes).toBe(held);
    expect(options.ledger.totals().totalHeldPeak).toBe(options.placement.totalBytes);
    expect(
      options.ledger.totals().moved[policy === 'stream' ? 'dense-weights' : 'packet-rows'],
    ).toBeGreaterThan(0);
    await source.close();
  },
);

function evens(width: number): number[] {
  return Array.from({ length: width / 2 }, (_, index) => 2 * index);
}

test('an abort while loading holds nothing', async () => {
  const options = parts('resident');
  const controller = new AbortController();
  const onProgress = () => controller.abort();
  const opening = openWeightSource({ ...options, onProgress, signal: controller.signal });
  await expect(opening).rejects.toMatchObject({ code: 'interrupted', exitCode: 130 });
  expect(options.ledger.totalHeld).toBe(0);
  expect(options.backend.counters.heldBytes).toBe(0);
});

test('a session that holds more than its placement knew of is refused', async () => {
  const options = parts('packets');
  options.ledger.hold('kv', 1);
  await expect(openWeightSource(options)).rejects.toMatchObject({ code: 'budget-exceeded', exitCode: 3 });
  expect(options.ledger.totalHeld).toBe(1);
  expect(options.backend.counters.heldBytes).toBe(0);
});

test('unknown ids are defects', async () => {
  const options = parts('stream');
  const source = await openWeightSource(options);
  const pass = new Pass(options.backend);
  await source.begin(pass, 'decode');
  const span = source.vector('final-norm.gamma');
  expect(span.byteLength).toBe(4 * 128);
  expect(() => source.vector('nothing')).toThrowError(expect.objectContaining({ code: 'defect' }));
  const request = { id: 'layers.9.first', rows: 1, x: span, out: span, residual: null };
  await expect(source.linear(pass, request)).rejects.toMatchObject({ code: 'defect' });
  await expect(source.gather(pass, { id: 'position-embedding', ids: [0], out: span })).rejects.toMatchObject({
    code: 'defect',
  });
  await source.close();
});
