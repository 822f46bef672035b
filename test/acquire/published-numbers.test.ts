import { expect, describe as group, test } from 'vitest';
import { planPlacement } from '../../src/acquire/plan.js';
import { policyNames } from '../../src/acquire/policy.js';
import { kvBytes } from '../../src/memory/kv-cache.js';
import { describe, roleBytes, storedParameters } from './support/opt-shape.js';
import { mib, opt13, opt27, request, run } from './support/published-shapes.js';

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

  test.each(policyNames)('%s accepts its minimum and nothing below', (policy) => {
    const description = describe(opt13, 'f16');
    const fixed = [{ label: 'kv cache', cause: 'kv' as const, bytes: 4_521_984 }];
    const plan = (budgetBytes: number) => planPlacement(request(description, policy, { budgetBytes, fixed }));
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
  });
});
