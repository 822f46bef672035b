import { expect, describe as group, test } from 'vitest';
import { openWeightSource } from '../../src/acquire/open.js';
import { type PlacementRequest, planPlacement } from '../../src/acquire/plan.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import { openNull } from '../../src/backend/null/open-null.js';
import type { StoredType } from '../../src/base/stored-type.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import { kvBytes } from '../../src/memory/kv-cache.js';
import { Ledger } from '../../src/memory/ledger.js';
import { driver } from './support/driver.js';
import { describe, emptyPrepared, optConfig, roleBytes, storedParameters } from './support/opt-shape.js';

const vocabSize = 50_272;
const opt13 = optConfig({ hiddenSize: 2048, ffnSize: 8192, layers: 24, heads: 32, vocabSize });
const opt27 = optConfig({ hiddenSize: 2560, ffnSize: 10240, layers: 32, heads: 32, vocabSize });
const mib = 1024 * 1024;

function request(
  description: ModelDescription,
  policy: PolicyName,
  extra: Partial<PlacementRequest> = {},
): PlacementRequest {
  const tensor = (id: string) => emptyTensors(description).tensor(id);
  return { description, tensor, policy, budgetBytes: Infinity, fixed: [], maxRows: 32, ...extra };
}

const prepared = new Map<ModelDescription, ReturnType<typeof emptyPrepared>>();
function emptyTensors(description: ModelDescription) {
  const known = prepared.get(description) ?? emptyPrepared(description);
  prepared.set(description, known);
  return known;
}

/** Runs passes of a policy on the null backend; `counts` are active rows of a layer by pass. */
async function run(options: {
  config: typeof opt13;
  type: StoredType;
  policy: PolicyName;
  prompts: number;
  newTokens: number;
  activeRows?: (layer: number, pass: number, width: number) => ArrayLike<number>;
  keepRows?: boolean;
}) {
  const description = describe(options.config, options.type);
  const ledger = new Ledger();
  const backend = openNull({
    activeRows: ({ layer, pass, width }) => options.activeRows?.(layer!, pass, width) ?? [],
  });
  const placement = planPlacement(
    request(
      description,
      options.policy,
      options.keepRows === undefined ? {} : { keepRows: options.keepRows },
    ),
  );
  const model = emptyTensors(description);
  const source = await openWeightSource({ placement, backend, prepared: model, ledger });
  const drive = driver({ description, backend, source, maxRows: placement.maxRows });
  const setup = ledger.totals();
  for (let prompt = 0; prompt < options.prompts; prompt += 1) {
    for (let token = 0; token < options.newTokens; token += 1) {
      const last = prompt === options.prompts - 1 && token === options.newTokens - 1;
      source.expect(last ? null : token === options.newTokens - 1 ? 'prefill' : 'decode');
      await drive.pass(token === 0 ? 'prefill' : 'decode', token === 0 ? [5, 6, 7] : [5]);
    }
  }
  const totals = ledger.totals();
  await source.close();
  return { placement, setup, totals, counters: backend.counters, description };
}

group('sizes of the published shapes', () => {
  test.each([
    [opt13, 1_315_758_080],
    [opt27, 2_651_596_800],
  ])('parameters of %o', (config, parameters) => {
    const { hiddenSize: d, ffnSize: f, layers, vocabSize: v } = config;
    expect(storedParameters(describe(config, 'f16'))).toBe(parameters);
    const formula = v * d + 2050 * d + layers * (4 * (d * d + d) + (f * d + f) + (f * d + d) + 4 * d) + 2 * d;
    expect(formula).toBe(parameters);
  });

  test('KV cache', () => {
    const bytes = (config: typeof opt13, capacity: number) =>
      kvBytes({
        layers: config.layers,
        slots: 1,
        kvHeads: config.kvHeads,
        headDim: config.headDim,
        capacity,
        type: 'f16',
      });
    expect(bytes(opt13, 23)).toBe(4_521_984);
    expect(bytes(opt27, 47)).toBe(15_400_960);
    expect(bytes(opt27, 527)).toBe(172_687_360);
  });
});

group('dense stream', () => {
  test.each([
    [opt13, 'f32', 2, 8, 25_769_803_776],
    [opt13, 'f16', 3, 16, 38_654_705_664],
    [opt27, 'f16', 3, 16, 80_530_636_800],
  ] as const)(
    '%# moves forwards times all second projections',
    async (config, type, prompts, newTokens, bytes) => {
      const { totals, setup, counters, description } = await run({
        config,
        type,
        policy: 'stream',
        prompts,
        newTokens,
      });
      expect(totals.moved['dense-weights']).toBe(bytes);
      expect(totals.movedRows['dense-weights']).toBe(prompts * newTokens * config.layers * config.ffnSize);
      expect(totals.moved['packet-rows']).toBe(0);
      expect(counters.transferBytes).toBe(bytes + setup.moved.setup);
      expect(setup.moved.setup).toBe(
        roleBytes(description, 'query', 'key', 'value', 'output', 'first', 'head') +
          description.vectors.reduce((sum, { width }) => sum + 4 * width, 0) +
          2050 * config.hiddenSize * (type === 'f32' ? 4 : 2),
      );
    },
  );
});

group('packets', () => {
  // Rows of published runs, spread over the layers and passes of the run they come from.
  test.each([
    [opt13, 'f32', 2, 8, 199_461],
    [opt13, 'f32', 3, 16, 526_566],
    [opt13, 'f32', 3, 16, 520_337],
    [opt13, 'f32', 3, 16, 713_530],
    [opt13, 'f16', 3, 16, 526_561],
    [opt27, 'f16', 3, 16, 745_953],
  ] as const)('%# moves rows without an index', async (config, type, prompts, newTokens, rows) => {
    const sets = prompts * newTokens * config.layers;
    const { totals, counters, setup } = await run({
      config,
      type,
      policy: 'packets',
      prompts,
      newTokens,
      keepRows: false,
      activeRows: (layer, pass, width) => {
        const index = pass * config.layers + layer;
        const count = Math.floor(((index + 1) * rows) / sets) - Math.floor((index * rows) / sets);
        return Array.from({ length: count }, (_, n) => Math.floor((n * width) / count));
      },
    });
    const bytes = type === 'f32' ? 4 : 2;
    expect(totals.movedRows['packet-rows']).toBe(rows);
    expect(totals.moved['packet-rows']).toBe(rows * config.hiddenSize * bytes);
    expect(totals.moved.indices).toBe(0);
    expect(totals.moved['dense-weights']).toBe(0);
    expect(totals.moved['active-set-readback']).toBe(4 * (sets + rows));
    expect(counters.transferBytes).toBe(setup.moved.setup + rows * config.hiddenSize * bytes);
  });

  test('phase-switched prefill and decode', async () => {
    const decodeRows = 490_071;
    const decodeSets = 3 * 15 * opt27.layers;
    const { totals } = await run({
      config: opt27,
      type: 'f16',
      policy: 'phase',
      prompts: 3,
      newTokens: 16,
      keepRows: false,
      activeRows: (layer, pass, width) => {
        const index = pass * opt27.layers + layer;
        const count =
          Math.floor(((index + 1) * decodeRows) / decodeSets) - Math.floor((index * decodeRows) / decodeSets);
        return Array.from({ length: count }, (_, n) => Math.floor((n * width) / count));
      },
    });
    expect(totals.moved['dense-weights']).toBe(3 * 1_677_721_600);
    expect(totals.movedRows['packet-rows']).toBe(decodeRows);
  });
});

group('a chunk of tokens', () => {
  const small = optConfig({ hiddenSize: 64, ffnSize: 512, layers: 2, heads: 2, vocabSize: 300 });

  test('moves a row of a layer once, however many tokens use it, and keeps it if there is room', async () => {
    const description = describe(small, 'f16');
    const ledger = new Ledger();
    const backend = openNull({ activeRows: ({ pass }) => (pass === 0 ? [1, 2, 3, 400] : [2, 3, 4]) });
    const { minimumBytes } = planPlacement(request(description, 'packets'));
    const whole = planPlacement(request(description, 'packets', { keepRows: false })).totalBytes;
    const budgetBytes = whole + 4 * 2 * 512 + 2 * 6 * 128; // the index, and six rows a layer
    expect(budgetBytes).toBeGreaterThan(minimumBytes);
    const placement = planPlacement(request(description, 'packets', { budgetBytes }));
    const source = await openWeightSource({
      placement,
      backend,
      prepared: emptyTensors(description),
      ledger,
    });
    const drive = driver({ description, backend, source, maxRows: placement.maxRows });
    await drive.pass('prefill', [1, 2, 3, 4, 5, 6, 7, 8]);
    expect(ledger.totals().movedRows['packet-rows']).toBe(2 * 4);
    await drive.pass('decode', [9]);
    expect(ledger.totals().movedRows['packet-rows']).toBe(2 * 5);
    expect(source.stats().layers).toEqual(
      Array.from({ length: 2 }, () => ({
        activeRows: 7,
        movedRows: 5,
        keptHits: 2,
        guessedUsed: 0,
        guessedWasted: 0,
        rounds: 2,
        densePieces: 0,
      })),
    );
    expect(source.stats().keptRows).toBe(2 * 5);
    await source.close();
  });

  test('moves an embedding row once, however many tokens have it', async () => {
    const description = describe(small, 'f16');
    const ledger = new Ledger();
    const backend = openNull({ activeRows: () => [] });
    const { minimumBytes } = planPlacement(request(description, 'stream'));
    const placement = planPlacement(request(description, 'stream', { budgetBytes: minimumBytes }));
    expect(placement.tables[0]!.path).toBe('rows');
    const prepared = emptyTensors(description);
    const source = await openWeightSource({ placement, backend, prepared, ledger });
    const drive = driver({ description, backend, source, maxRows: placement.maxRows });
    await drive.pass('prefill', [5, 7, 5, 5, 299]);
    expect(ledger.totals().movedRows['embedding-rows']).toBe(3);
    expect(ledger.totals().moved['embedding-rows']).toBe(3 * 64 * 2);
    await expect(drive.pass('decode', [300])).rejects.toMatchObject({ code: 'defect' });
    await source.close();
  });
});

group('budgets', () => {
  test('regime C of the 2.7B shape fits 4,800 MiB', () => {
    const description = describe(opt27, 'f16');
    const kv = { layers: 32, slots: 1, kvHeads: 32, headDim: 80, capacity: 527, type: 'f16' } as const;
    const fixed = [{ label: 'kv cache', cause: 'kv' as const, bytes: kvBytes(kv) }];
    const budgetBytes = 4800 * mib;
    const placement = planPlacement(request(description, 'packets', { budgetBytes, fixed }));
    expect(placement.regime).toBe('C');
    expect(placement.totalBytes).toBeLessThanOrEqual(budgetBytes);
    expect(placement.moved.denseDecodeBytes).toBe(0);
    expect(placement.moved.packetBytesAtFullActivity).toBe(1_677_721_600);
  });

  test.each(['resident', 'resident-sparse', 'stream', 'packets', 'phase'] as const)(
    '%s accepts its minimum and nothing below',
    (policy) => {
      const description = describe(opt13, 'f16');
      const fixed = [{ label: 'kv cache', cause: 'kv' as const, bytes: 4_521_984 }];
      const plan = (budgetBytes: number) =>
        planPlacement(request(description, policy, { budgetBytes, fixed }));
      const { minimumBytes } = plan(Infinity);
      expect(() => plan(minimumBytes - 1)).toThrowError(
        expect.objectContaining({
          code: 'budget-too-small',
          data: expect.objectContaining({
            minimumBytes,
            budgetBytes: minimumBytes - 1,
            components: expect.arrayContaining([fixed[0]]),
          }),
        }),
      );
      expect(plan(minimumBytes).totalBytes).toBe(minimumBytes);
      expect(plan(minimumBytes + 1).totalBytes).toBeLessThanOrEqual(minimumBytes + 1);
      expect(plan(minimumBytes + 1).minimumBytes).toBe(minimumBytes);
    },
  );
});
