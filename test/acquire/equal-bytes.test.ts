import fc from 'fast-check';
import { afterAll, beforeAll, expect, describe as group, test } from 'vitest';
import { type ActivationProfile, makeProfile } from '../../src/acquire/activation-profile.js';
import type { ForecastTiming } from '../../src/acquire/forecast-way.js';
import type { Placement } from '../../src/acquire/placement.js';
import type { PlacementRequest } from '../../src/acquire/plan.js';
import { exactPolicyNames } from '../../src/acquire/policies.js';
import { isRowPath, type PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { openBackend } from '../../src/backend/open.js';
import type { StoredType } from '../../src/base/stored-type.js';
import { type LowBitName, lowBitNames } from '../../src/checkpoint/low-bit.js';
import { openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { uniformLowBit } from '../../src/checkpoint/low-bit-plan.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { holdCauses } from '../../src/memory/causes.js';
import { describe, gatedConfig, optConfig } from './support/opt-shape.js';
import { type NeuronState, writePrepared } from './support/prepared-file.js';
import { seededRandom } from './support/random.js';
import { openOracle, openSession, plan, type ScriptPass, traceSums } from './support/session.js';

const maxRows = 4;
type BackendName = 'oracle' | 'native' | 'wasm';
/** Where there are no native kernels, the oracle stands in for them. */
const backends = new Map<BackendName, Backend>();
beforeAll(async () => {
  const oracle = await openOracle();
  backends.set('oracle', oracle);
  const { available, reason } = nativeStatus();
  if (!available) console.warn(`Not run on native kernels: ${reason}`);
  const cpu = (kernels: 'native' | 'wasm') => openBackend({ name: 'cpu', threads: 2, kernels });
  backends.set('native', available ? await cpu('native') : oracle);
  backends.set('wasm', await cpu('wasm'));
});
afterAll(async () => {
  for (const backend of new Set(backends.values())) await backend.close();
});

const activities = ['none', 'one', 'few', 'half', 'all'] as const;
type Activity = (typeof activities)[number];

function neuronStates(activity: Activity, ffnSize: number, seed: number) {
  const random = seededRandom(seed);
  const few = new Set(
    Array.from({ length: Math.ceil(0.03 * ffnSize) }, () => Math.floor(random() * ffnSize)),
  );
  const one = Math.floor(random() * ffnSize);
  return (layer: number, neuron: number): NeuronState => {
    switch (activity) {
      case 'none':
        return 'off';
      case 'one':
        return neuron === one ? 'on' : 'off';
      case 'few':
        return few.has((neuron + layer) % ffnSize) ? 'on' : 'off';
      case 'half':
        return 'mixed';
      case 'all':
        return 'on';
    }
  };
}

interface Case {
  readonly gated: boolean;
  readonly type: StoredType;
  readonly hiddenSize: number;
  readonly ffnSize: number;
  readonly vocabSize: number;
  readonly layers: number;
  /** The reference is the oracle's. */
  readonly on: BackendName;
  readonly lowBit: LowBitName;
  readonly activity: Activity;
  readonly seed: number;
  readonly policy: PolicyName;
  /** Between the minimum (0) and what would hold the whole model (1), or bytes above the minimum. */
  readonly room: number | { readonly bytes: number };
  readonly keepRows: boolean;
  /** Places a matrix of an LRU; 0: a hot set by what the reference run used. */
  readonly lruRows: number;
  readonly forecast: ForecastTiming;
}

const cases: fc.Arbitrary<Case> = fc.record({
  gated: fc.boolean(),
  type: fc.constantFrom<StoredType>('f32', 'f16', 'bf16'),
  hiddenSize: fc.constantFrom(8, 20, 132),
  ffnSize: fc.constantFrom(60, 128, 300, 420),
  vocabSize: fc.constantFrom(17, 90),
  layers: fc.integer({ min: 1, max: 5 }),
  on: fc.constantFrom<BackendName>('oracle', 'native', 'wasm'),
  lowBit: fc.constantFrom(...lowBitNames),
  activity: fc.constantFrom(...activities),
  seed: fc.integer({ min: 0, max: 2 ** 31 }),
  policy: fc.constantFrom(...exactPolicyNames),
  room: fc.oneof(fc.constantFrom(0, 1, { bytes: 1 }), fc.double({ min: 0, max: 1, noNaN: true })),
  keepRows: fc.boolean(),
  lruRows: fc.constantFrom(0, 1, 7, 130, 1024),
  forecast: fc.constantFrom<ForecastTiming>('early', 'late'),
});

function descriptionOf({ gated, type, hiddenSize, ffnSize, vocabSize, layers }: Case): ModelDescription {
  const shape = { hiddenSize, ffnSize, layers, heads: 2, vocabSize, maxPositions: 20 };
  return describe(gated ? gatedConfig(shape) : optConfig(shape), type);
}

function script(seed: number, vocabSize: number): ScriptPass[] {
  const random = seededRandom(seed);
  const ids = (count: number) => Array.from({ length: count }, () => Math.floor(random() * vocabSize));
  return [
    { kind: 'prefill', ids: ids(1 + Math.floor(random() * 2)), wantsHead: false },
    { kind: 'prefill', ids: ids(maxRows), wantsHead: true },
    { kind: 'decode', ids: ids(1), wantsHead: true },
    { kind: 'decode', ids: ids(2), wantsHead: true },
    { kind: 'prefill', ids: ids(2), wantsHead: true },
    { kind: 'decode', ids: ids(1), wantsHead: true },
  ];
}

interface Outcome {
  readonly outputs: readonly Uint8Array[];
  /** Unions of active neurons over the rows of each pass, summed over layers and matrices. */
  readonly activeByPass: readonly number[];
  /** Rows of blocks of 128 with an active neuron, likewise. */
  readonly extentRowsByPass: readonly number[];
  /** Of first projections and gates alone. */
  readonly activeFirstByPass: readonly number[];
  readonly profile: ActivationProfile;
}

/** The reference: everything resident, every row read; counts activity by itself. */
async function reference(prepared: PreparedModel, passes: readonly ScriptPass[]): Promise<Outcome> {
  const oracle = backends.get('oracle')!;
  const session = await openSession(oracle, prepared, plan(prepared, 'resident', maxRows));
  const activeByPass: number[] = [];
  const extentRowsByPass: number[] = [];
  const activeFirstByPass: number[] = [];
  const uses = new Map<string, number[]>();
  const drive = session.drive({
    observer: async ({ op, label }, where) => {
      const x = op.kind === 'activate' ? op.x : op.kind === 'gated-product' ? op.gate : null;
      if (x === null) return;
      const { ffnSize } = prepared.description.config;
      const values = new Float32Array((await where.read(x)).slice().buffer);
      const active = new Set<number>();
      values.forEach((value, index) => {
        if (value !== 0) active.add(index % ffnSize);
      });
      activeByPass[activeByPass.length - 1]! += active.size;
      if (op.kind === 'activate') activeFirstByPass[activeFirstByPass.length - 1]! += active.size;
      for (const block of new Set([...active].map((neuron) => Math.floor(neuron / 128)))) {
        extentRowsByPass[extentRowsByPass.length - 1]! += Math.min(128, ffnSize - 128 * block);
      }
      const gated = prepared.description.matrices.some(({ role }) => role === 'gate');
      const role = op.kind === 'activate' && gated ? 'up' : 'second';
      const id = `${label.split('.').slice(0, 2).join('.')}.${role}`;
      const counts = uses.get(id) ?? new Array<number>(ffnSize).fill(0);
      uses.set(id, counts);
      for (const neuron of active) counts[neuron]! += 1;
    },
  });
  const outputs: Uint8Array[] = [];
  for (const { kind, ids, wantsHead } of passes) {
    activeByPass.push(0);
    extentRowsByPass.push(0);
    activeFirstByPass.push(0);
    outputs.push(await drive.pass(kind, ids, wantsHead));
  }
  drive.close();
  await session.source.close();
  const matrices = Array.from(uses, ([id, counts]) => ({ id, counts, repeats: 0 }));
  const profile = makeProfile('', passes.length, matrices);
  return { outputs, activeByPass, extentRowsByPass, activeFirstByPass, profile };
}

async function check(options: Case): Promise<void> {
  const description = descriptionOf(options);
  const { activity, seed, policy, room, keepRows, lruRows, forecast, on } = options;
  const states = neuronStates(activity, description.config.ffnSize, seed);
  const prepared = writePrepared(description, seed, states);
  try {
    const passes = script(seed, description.config.vocabSize);
    const expected = await reference(prepared, passes);
    const full = plan(prepared, 'resident', maxRows).totalBytes;
    const { profile } = expected;
    const extra: Partial<PlacementRequest> = {
      keepRows,
      forecast,
      lowBit: uniformLowBit(description, (id) => prepared.tensor(id).finite, options.lowBit),
      retain: lruRows === 0 ? { kind: 'hot', profile } : { kind: 'lru', rowsPerMatrix: lruRows },
    };
    const { minimumBytes } = plan(prepared, policy, maxRows, extra);
    const above = typeof room === 'number' ? Math.floor(room * Math.max(0, full - minimumBytes)) : room.bytes;
    const budgetBytes = minimumBytes + above;
    const placement = plan(prepared, policy, maxRows, { ...extra, budgetBytes });
    expect(placement.totalBytes).toBeLessThanOrEqual(budgetBytes);

    const lowBit = policy === 'certified' ? await openLowBit(prepared, extra.lowBit!) : undefined;
    const backend = backends.get(on)!;
    const session = await openSession(backend, prepared, placement, profile, Infinity, lowBit);
    const { ledger, source } = session;
    expect(ledger.totalHeld).toBe(placement.totalBytes);
    for (const cause of holdCauses) {
      const planned = placement.components.filter((component) => component.cause === cause);
      expect(ledger.totals().held[cause]).toBe(planned.reduce((sum, { bytes }) => sum + bytes, 0));
    }
    const drive = session.drive();
    for (const [index, { kind, ids, wantsHead }] of passes.entries()) {
      const output = await drive.pass(kind, ids, wantsHead);
      expect(Buffer.compare(output, expected.outputs[index]!), `pass ${index}`).toBe(0);
    }
    await source.reset();
    checkMoves(placement, expected, passes, session);
    drive.close();
    await source.close();
    expect(ledger.totalHeld).toBe(0);
    expect(ledger.totals().totalHeldPeak).toBe(placement.totalBytes);
  } finally {
    await prepared.close();
  }
}

function checkMoves(
  placement: Placement,
  expected: Outcome,
  passes: readonly ScriptPass[],
  { ledger, records, source }: Awaited<ReturnType<typeof openSession>>,
): void {
  const totals = ledger.totals();
  expect(traceSums(records)).toEqual({ moved: totals.moved, movedRows: totals.movedRows });
  expect(records.map(({ sequence }) => sequence)).toEqual(records.map((_, index) => index + 1));
  const stats = source.stats();
  type Sum = 'uncertainRows' | 'activeRows' | 'movedRows' | 'keptHits' | 'guessedUsed' | 'guessedWasted';
  const layerSum = (key: Sum) => stats.layers.reduce((sum, layer) => sum + layer[key], 0);

  // Rows: every active row of the passes that move rows alone was moved, found or guessed.
  const fed = placement.matrices.filter(({ arena }) => arena !== null);
  const path = fed.map(({ paths }) => paths.decode)[0];
  const movesRows = (kind: 'prefill' | 'decode') => fed.some(({ paths }) => isRowPath(paths[kind]));
  const sumOf = (byPass: readonly number[]) =>
    passes.reduce((sum, { kind }, index) => sum + (movesRows(kind) ? byPass[index]! : 0), 0);
  const active = sumOf(expected.activeByPass);
  const [moved, found] = [layerSum('movedRows'), layerSum('keptHits')];
  const [used, wasted] = [layerSum('guessedUsed'), layerSum('guessedWasted')];
  expect(layerSum('activeRows')).toBe(active);
  // Of a first projection or gate what no certificate decides, all of its active neurons among it.
  const uncertain = layerSum('uncertainRows');
  const activeFirst = path === 'certified' ? sumOf(expected.activeFirstByPass) : 0;
  expect(uncertain).toBeGreaterThanOrEqual(activeFirst);
  const movedUncertain = totals.movedRows['uncertain-rows'];
  expect(movedUncertain).toBeLessThanOrEqual(uncertain);
  if (found === 0) expect(movedUncertain).toBe(uncertain);
  if (path === 'extents') expect(moved).toBe(sumOf(expected.extentRowsByPass));
  else expect(moved + found + used).toBe(active + uncertain);
  const rowBytes = placement.arenas[0]?.rowBytes ?? 0;
  const ofPath = (own: typeof path, rows: number) => (path === own ? rows : 0);
  for (const [cause, rows, bytes] of [
    ['packet-rows', moved - ofPath('extents', moved) - ofPath('retained', moved) - movedUncertain, rowBytes],
    ['uncertain-rows', movedUncertain, rowBytes],
    ['extent-rows', ofPath('extents', moved), rowBytes],
    ['indices', ofPath('staged', moved), 8],
    ['retention-misses', ofPath('retained', moved), rowBytes],
    ['retention-hits', ofPath('retained', found), 0],
    ['forecast-used', used, rowBytes],
    ['forecast-wasted', wasted, rowBytes],
  ] as const) {
    expect([cause, totals.movedRows[cause], totals.moved[cause]]).toEqual([cause, rows, rows * bytes]);
  }
  expect(used + wasted > 0 ? path : 'forecast').toBe('forecast');
  expect(records.some(({ cause }) => cause === 'active-set-readback')).toBe(fed.length > 0);

  // Streams: what was used is what the placement says, what was dropped is charged, too.
  const streamedBytes = passes.reduce(
    (sum, { kind, wantsHead }) =>
      sum +
      placement.matrices
        .filter(({ paths, role }) => paths[kind] === 'streamed' && (wantsHead || role !== 'head'))
        .reduce((bytes, matrix) => bytes + matrix.bytes, 0),
    0,
  );
  expect(stats.streamUsedBytes).toBe(streamedBytes);
  expect(totals.moved['dense-weights']).toBe(stats.streamUsedBytes + stats.streamDroppedBytes);

  switch (placement.policy) {
    case 'resident':
    case 'resident-sparse':
      expect(placement.regime).toBe('resident');
      expect(new Set(records.map(({ cause }) => cause))).toEqual(new Set(['setup']));
      break;
    case 'stream':
      for (const matrix of placement.matrices.filter(({ role }) => role === 'second' || role === 'up')) {
        const seen = new Set(records.filter(({ id }) => id === matrix.id).map(({ pass }) => pass));
        for (let pass = 1; pass <= passes.length; pass += 1) expect(seen).toContain(pass);
      }
      expect(totals.moved['packet-rows']).toBe(0);
      break;
    case 'extents':
    case 'packets-staged':
    case 'retention':
    case 'forecast':
      for (const { role, paths } of placement.matrices) {
        if (role !== 'second' && role !== 'up') continue;
        expect([paths.prefill, paths.decode]).toEqual([path, path]);
      }
      expect(path).toBe(
        { extents: 'extents', 'packets-staged': 'staged', retention: 'retained', forecast: 'forecast' }[
          placement.policy
        ],
      );
      break;
    case 'packets':
      for (const { role, paths } of placement.matrices) {
        if (role !== 'second' && role !== 'up') continue;
        expect(['packets', 'resident-sparse']).toContain(paths.prefill);
        expect(paths.decode).toBe(paths.prefill);
      }
      break;
    case 'phase':
      for (const { role, paths } of placement.matrices) {
        if (role !== 'second' && role !== 'up') continue;
        expect([
          ['streamed', 'packets'],
          ['resident', 'resident-sparse'],
        ]).toContainEqual([paths.prefill, paths.decode]);
      }
      break;
  }
}

group('every policy gives the bytes of the resident model', () => {
  test('over random shapes, activities and budgets', async () => {
    await fc.assert(fc.asyncProperty(cases, check), { numRuns: 60, seed: 20261130 });
  });

  test.each(exactPolicyNames.flatMap((policy) => activities.map((activity) => [policy, activity] as const)))(
    '%s, %s active, at the minimum, one byte above, and with all the room',
    async (policy, activity) => {
      const base = {
        type: 'f16',
        hiddenSize: 12,
        ffnSize: 300,
        vocabSize: 17,
        seed: 7,
        keepRows: true,
        lruRows: 40,
        forecast: 'early',
        layers: 2,
        on: 'oracle',
        lowBit: 'int8',
      } as const;
      const rooms = policy.startsWith('resident') ? [0] : [0, { bytes: 1 }, 0.5, 1];
      for (const gated of [false, true]) {
        for (const room of rooms) await check({ ...base, policy, activity, gated, room });
      }
    },
  );
});
