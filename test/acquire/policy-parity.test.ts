import { afterAll, beforeAll, expect, describe as group, test } from 'vitest';
import { type ActivationProfile, makeProfile } from '../../src/acquire/activation-profile.js';
import { GuessLearner, guessFeatures } from '../../src/acquire/guess-table.js';
import type { PlacementRequest } from '../../src/acquire/plan.js';
import { exactPolicyNames } from '../../src/acquire/policies.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { openBackend } from '../../src/backend/open.js';
import { Pass } from '../../src/backend/pass.js';
import { logitsDigest } from '../../src/base/digest.js';
import type { StoredType } from '../../src/base/stored-type.js';
import { lowBitNames } from '../../src/checkpoint/low-bit.js';
import { roundDirections } from '../../src/checkpoint/low-bit-copy.js';
import { openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { type LowBitPlan, uniformLowBit } from '../../src/checkpoint/low-bit-plan.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import type { MoveCause } from '../../src/memory/causes.js';
import { KvCache } from '../../src/memory/kv-cache.js';
import { createModel } from '../../src/model/open-model.js';
import { openWorkspace, planWorkspace } from '../../src/model/workspace.js';
import { describe, gatedConfig, optConfig } from './support/opt-shape.js';
import { writePrepared } from './support/prepared-file.js';
import { openOracle, openSession, plan } from './support/session.js';

const shape = { hiddenSize: 16, ffnSize: 300, layers: 3, heads: 2, vocabSize: 40, maxPositions: 24 };
const architectures = {
  'OPT pre-norm': optConfig(shape),
  'OPT post-norm': { ...optConfig(shape), preNorm: false },
  'gated ReLU': gatedConfig(shape),
};
const passes = [[3, 9, 27, 1], [30, 17], [8], [39], [8]] as const;
const maxRows = 4;

interface Variant extends Partial<PlacementRequest> {
  readonly policy: PolicyName;
}

/** Each policy, and each choice that it has, with the causes that show that its own path ran. */
function variants(
  profile: ActivationProfile,
  description: ModelDescription,
): [Variant, readonly MoveCause[]][] {
  const hot = { kind: 'hot', profile } as const;
  const lru = { kind: 'lru', rowsPerMatrix: 90 } as const;
  return [
    [{ policy: 'resident-sparse' }, []],
    [{ policy: 'stream' }, ['dense-weights']],
    [{ policy: 'extents' }, ['extent-rows']],
    [{ policy: 'packets' }, ['packet-rows']],
    [{ policy: 'packets-staged' }, ['packet-rows', 'indices']],
    [{ policy: 'retention', retain: lru }, ['retention-hits', 'retention-misses']],
    [{ policy: 'retention', retain: hot }, ['retention-misses']],
    [{ policy: 'forecast', forecast: 'early' }, ['forecast-used', 'forecast-wasted', 'packet-rows']],
    [{ policy: 'forecast', forecast: 'late' }, ['forecast-used', 'forecast-wasted', 'packet-rows']],
    [
      { policy: 'forecast', forecast: 'early', guesser: 'residual', profile },
      ['forecast-used', 'forecast-wasted', 'packet-rows'],
    ],
    [
      { policy: 'forecast', forecast: 'late', guesser: 'residual', profile },
      ['forecast-used', 'forecast-wasted', 'packet-rows'],
    ],
    [{ policy: 'phase' }, ['dense-weights', 'packet-rows']],
    ...(lowBitNames.map((format) => [
      { policy: 'certified', lowBit: uniformLowBit(description, () => true, format) },
      ['dense-weights', 'uncertain-rows', 'packet-rows'],
    ]) as [Variant, readonly MoveCause[]][]),
    [{ policy: 'certified', lowBit: directed(description) }, ['uncertain-rows', 'packet-rows']],
  ];
}

/** Directions that nobody chose by a sample: they must change no bit either. */
function directed(description: ModelDescription): LowBitPlan {
  const { choices } = uniformLowBit(description, () => true, 'int5g32');
  const inputs = description.config.hiddenSize;
  const row = (j: number) =>
    Float64Array.from({ length: inputs }, (_, i) => ((i * 7 + j * 3) % 11) / 20 - 0.25);
  const directions = roundDirections(
    Array.from({ length: 16 }, (_, j) => row(j)),
    inputs,
  );
  return {
    name: 'directed',
    choices: new Map(Array.from(choices, ([id, choice]) => [id, { ...choice, directions }])),
  };
}

/** The oracle first, then every CPU kernel that opens here. */
const backends = new Map<string, Backend>();
beforeAll(async () => {
  backends.set('oracle', await openOracle());
  for (const kernels of ['native', 'wasm'] as const) {
    if (kernels === 'native' && !nativeStatus().available) {
      console.warn(`Not run on native kernels: ${nativeStatus().reason}`);
      continue;
    }
    backends.set(kernels, await openBackend({ name: 'cpu', threads: 2, kernels }));
  }
});
afterAll(async () => {
  for (const backend of backends.values()) await backend.close();
});

async function digests(
  backend: Backend,
  prepared: PreparedModel,
  kv: 'f16' | 'f32',
  variant: Variant,
  room: number,
  profile?: ActivationProfile,
) {
  const { policy, ...extra } = variant;
  const { minimumBytes, totalBytes } = plan(prepared, policy, maxRows, { ...extra, keepRows: false });
  const budgetBytes = minimumBytes + Math.floor(room * (totalBytes - minimumBytes));
  const placement = plan(prepared, policy, maxRows, { ...extra, keepRows: false, budgetBytes });
  const lowBit = policy === 'certified' ? await openLowBit(prepared, extra.lowBit!) : undefined;
  const session = await openSession(backend, prepared, placement, profile, Infinity, lowBit);
  const { config } = prepared.description;
  const limits = { maxRows, maxLogitsRows: maxRows, capacity: 24, parallelism: backend.parallelism };
  const workspace = openWorkspace(backend, planWorkspace(prepared.description, limits));
  const { layers, kvHeads, headDim } = config;
  const cache = new KvCache(backend, { layers, kvHeads, headDim, capacity: 24, slots: 1, type: kv });
  const model = createModel(prepared.description, session.source, workspace, cache, backend);
  const found: string[] = [];
  let position = 0;
  for (const ids of passes) {
    const kind = ids.length > 1 ? 'prefill' : 'decode';
    const rows = ids.map((tokenId, index) => ({ slot: 0, position: position + index, tokenId }));
    position += ids.length;
    const pass = new Pass(backend);
    await session.source.begin(pass, kind);
    const logits = await model.forward(pass, { kind, rows, logitsRows: [...ids.keys()] });
    await session.source.end(pass);
    const values = new Float32Array((await backend.read(logits)).slice().buffer);
    for (const row of ids.keys()) {
      found.push(logitsDigest(values.subarray(row * config.vocabSize, (row + 1) * config.vocabSize)));
    }
  }
  await session.source.close();
  await lowBit?.close();
  cache.close();
  for (const buffer of workspace.buffers) backend.release(buffer);
  return { found, causes: new Set(session.records.map(({ cause }) => cause)) };
}

/** A record that marks every third neuron as hot, whatever is true: a bad choice must cost bytes alone. */
function anyProfile({ matrices }: ModelDescription): ActivationProfile {
  const ofNeurons = matrices.filter(({ neuronAxis }) => neuronAxis !== null);
  const counts = Array.from({ length: shape.ffnSize }, (_, neuron) => (neuron % 3 === 0 ? 9 : 1));
  return makeProfile(
    '',
    10,
    ofNeurons.map(({ id }) => ({ id, counts, repeats: 0 })),
    {
      features: guessFeatures,
      tables: ofNeurons.map(({ id }) => ({ id, weights: new GuessLearner(shape.ffnSize).weights() })),
    },
  );
}

group('every policy gives the digests of the resident model', () => {
  const kinds = Object.keys(architectures) as (keyof typeof architectures)[];
  const types: StoredType[] = ['f32', 'f16', 'bf16'];
  test.each(kinds.flatMap((kind) => types.map((type) => [kind, type] as const)))(
    '%s, %s',
    async (kind, type) => {
      const description = describe(architectures[kind], type);
      const profile = anyProfile(description);
      const prepared = writePrepared(description, 5, () => 'mixed');
      try {
        const seen = new Set<string>();
        for (const kv of ['f16', 'f32'] as const) {
          const reference = await digests(backends.get('oracle')!, prepared, kv, { policy: 'resident' }, 0);
          seen.add(reference.found.join());
          // Budgets take turns over backends and KV types: every pair of them meets each variant.
          for (const [place, [on, backend]] of [...backends].entries()) {
            const room = (place + (kv === 'f16' ? 0 : 1)) % 2 === 0 ? 0 : 0.4;
            const all: [Variant, readonly MoveCause[]][] = [
              [{ policy: 'resident' }, []],
              ...variants(profile, description),
            ];
            for (const [variant, causes] of all) {
              const ran = await digests(backend, prepared, kv, variant, room, profile);
              const detail = variant.forecast ?? variant.retain?.kind ?? variant.lowBit?.name ?? '';
              const name = `${variant.policy} ${detail} on ${on}, kv ${kv}, room ${room}`;
              expect(ran.found, name).toEqual(reference.found);
              for (const cause of causes) expect(ran.causes, name).toContain(cause);
            }
          }
        }
        expect(seen.size).toBe(2); // the KV type shows in the bits
      } finally {
        await prepared.close();
      }
    },
  );

  test('no policy is left out', () => {
    const description = describe(architectures['gated ReLU'], 'f32');
    const covered = variants(anyProfile(description), description).map(([{ policy }]) => policy);
    expect(new Set([...covered, 'resident'])).toEqual(new Set(exactPolicyNames));
  });
});

test('a model that a policy cannot help says so', async () => {
  const dense = describe({ ...optConfig(shape), activation: 'gelu' }, 'f32');
  const prepared = writePrepared(dense, 5, () => 'mixed');
  for (const policy of ['extents', 'packets', 'packets-staged', 'retention', 'forecast', 'phase'] as const) {
    const { notes, arenas } = plan(prepared, policy, maxRows);
    expect(arenas).toEqual([]);
    expect(notes).toEqual([
      `policy "${policy}" cannot help this model: its activations are never exactly zero; second projections are held where the budget allows, else streamed whole`,
    ]);
  }
  const mixed = writePrepared(
    describe(optConfig(shape), 'f32'),
    5,
    () => 'mixed',
    new Set(['layers.1.second']),
  );
  expect(plan(mixed, 'extents', maxRows).notes).toEqual([
    'policy "extents" cannot help 1 of 3 matrices, which hold non-finite weights; they are held where the budget allows, else streamed whole',
  ]);
  await prepared.close();
  await mixed.close();
});
