import { expect, describe as group, test } from 'vitest';
import { makeProfile } from '../../src/acquire/activation-profile.js';
import { openWeightSource } from '../../src/acquire/open.js';
import { planPlacement } from '../../src/acquire/plan.js';
import { openNull } from '../../src/backend/null/open-null.js';
import { Ledger } from '../../src/memory/ledger.js';
import { driver } from './support/driver.js';
import { describe, optConfig } from './support/opt-shape.js';
import { emptyTensors, mib, opt13, opt27, request, run } from './support/published-shapes.js';

group('extents', () => {
  const total = 21_340; // of 24 layers x 64 extents x 16 forwards
  const sets = 24 * 16;

  test('move whole, without an index', async () => {
    const { totals, counters, setup } = await run({
      config: opt13,
      type: 'f32',
      policy: 'extents',
      prompts: 2,
      newTokens: 8,
      activeRows: (layer, pass, width) => {
        const index = pass * opt13.layers + layer;
        const extents = Math.floor(((index + 1) * total) / sets) - Math.floor((index * total) / sets);
        // One to three active rows in each of the first extents; which, and how many, must not matter.
        return Array.from({ length: extents }, (_, extent) =>
          [0, 17, 127].slice(0, 1 + (extent % 3)).map((row) => extent * 128 + row),
        )
          .flat()
          .filter((neuron) => neuron < width);
      },
    });
    expect(totals.moved['extent-rows']).toBe(22_376_611_840);
    expect(totals.movedRows['extent-rows']).toBe(total * 128);
    for (const cause of ['packet-rows', 'indices', 'dense-weights'] as const)
      expect(totals.moved[cause]).toBe(0);
    expect(counters.transferBytes).toBe(setup.moved.setup + 22_376_611_840);
  });
});

group('staged packets', () => {
  test.each([
    [opt13, 'f32', 2, 8, 199_461, 1_635_580_200],
    [opt13, 'f32', 3, 16, 526_566, 4_317_841_200],
    [opt13, 'f32', 3, 16, 520_337, 4_266_763_400],
    [opt13, 'f16', 3, 16, 526_561, 2_161_006_344],
    [opt27, 'f16', 3, 16, 745_953, 3_825_246_984],
  ] as const)('%# move an index with each row', async (config, type, prompts, newTokens, rows, bytes) => {
    const sets = prompts * newTokens * config.layers;
    const { totals, placement } = await run({
      config,
      type,
      policy: 'packets-staged',
      prompts,
      newTokens,
      activeRows: (layer, pass, width) => {
        const index = pass * config.layers + layer;
        const count = Math.floor(((index + 1) * rows) / sets) - Math.floor((index * rows) / sets);
        return Array.from({ length: count }, (_, n) => Math.floor((n * width) / count));
      },
    });
    expect(totals.movedRows['packet-rows']).toBe(rows);
    expect(totals.movedRows.indices).toBe(rows);
    expect(totals.moved.indices).toBe(rows * 8);
    expect(totals.moved['packet-rows'] + totals.moved.indices).toBe(bytes);
    const held = (label: string) => placement.components.find((part) => part.label === label)!.bytes;
    const packet = held('packet rows') + held('packet indices');
    const [packetBytes, workspaceBytes] =
      type === 'f32'
        ? [67_174_400, 67_108_864]
        : config === opt27
          ? [52_510_720, 52_428_800]
          : [33_619_968, 33_554_432];
    expect([packet, held('scattered rows')]).toEqual([packetBytes, workspaceBytes]);
  });
});

group('forecast', () => {
  // One layer's active set of a pass is a range; the next one begins so far before its end as rows were guessed right.
  const tokens = 16;
  const guessing = 24 * 3 * (tokens - 1);
  const share = (total: number, index: number, parts: number) =>
    Math.floor(((index + 1) * total) / parts) - Math.floor((index * total) / parts);
  const ranges = new Map<string, [number, number]>();
  const rangeOf = (layer: number, pass: number): [number, number] => {
    const key = `${layer} ${pass}`;
    const known = ranges.get(key);
    if (known !== undefined) return known;
    const [prompt, token] = [Math.floor(pass / tokens), pass % tokens];
    const index = (prompt * 24 + layer) * (tokens - 1) + token;
    const size =
      token < tokens - 1
        ? share(188_336 + 193_193, index, guessing) // guessed for the token behind
        : share(520_337 - 188_336 - 193_193, prompt * 24 + layer, 3 * 24);
    const begin = token === 0 ? 0 : rangeOf(layer, pass - 1)[1] - share(188_336, index - 1, guessing);
    const range: [number, number] = [begin, begin + size];
    ranges.set(key, range);
    return range;
  };

  test.each(['early', 'late'] as const)('%s: used, wasted and completed rows add up', async (timing) => {
    const { totals } = await run({
      config: opt13,
      type: 'f32',
      policy: 'forecast',
      prompts: 3,
      newTokens: tokens,
      forecast: timing,
      activeRows: (layer, pass) => {
        const [begin, end] = rangeOf(layer, pass);
        return Array.from({ length: end - begin }, (_, n) => begin + n);
      },
    });
    const { movedRows, moved } = totals;
    expect(movedRows['forecast-used']).toBe(188_336);
    expect(movedRows['forecast-wasted']).toBe(193_193);
    expect(movedRows['packet-rows']).toBe(332_001);
    expect(movedRows['forecast-used'] + movedRows['packet-rows']).toBe(520_337);
    const rows = movedRows['forecast-used'] + movedRows['forecast-wasted'] + movedRows['packet-rows'];
    expect(rows).toBe(713_530);
    expect(rows - 520_337).toBe(193_193);
    expect(rows * (8192 + 8)).toBe(5_850_946_000); // with the index of staged packets, as published
    expect(moved['forecast-used'] + moved['forecast-wasted'] + moved['packet-rows']).toBe(rows * 8192);
  });

  test('room for guesses of 1,024 rows', () => {
    const { arenas, components } = planPlacement(request(describe(opt13, 'f32'), 'forecast'));
    expect(arenas).toMatchObject([{ guessRooms: 2, guessRows: 1024, rowBytes: 8192 }]);
    expect(components).toContainEqual({
      label: 'guessed rows',
      cause: 'forecast-rows',
      bytes: 2 * (8_396_800 - 1024 * 8),
    });
  });
});

group('retention', () => {
  test('an LRU of 1,024 rows a layer', () => {
    const { components, arenas } = planPlacement(request(describe(opt13, 'f32'), 'retention'));
    expect(components).toContainEqual({
      label: 'retention slots',
      cause: 'retention-slots',
      bytes: 192 * mib,
    });
    expect(arenas).toMatchObject([{ keptRows: 24 * 1024 }]);
    expect(components).toContainEqual({
      label: 'retention index',
      cause: 'retention-index',
      bytes: 24 * (4 * 8192 + 16 * 1024),
    });
  });

  test('misses move, hits do not', async () => {
    const { totals } = await run({
      config: opt13,
      type: 'f32',
      policy: 'retention',
      prompts: 1,
      newTokens: 3,
      activeRows: (_layer, pass) =>
        [
          [1, 2, 3],
          [2, 3, 9],
          [1, 9],
        ][pass]!,
    });
    expect(totals.movedRows['retention-misses']).toBe(24 * 4);
    expect(totals.moved['retention-misses']).toBe(24 * 4 * 8192);
    expect(totals.movedRows['retention-hits']).toBe(24 * 4);
    expect(totals.moved['retention-hits']).toBe(0);
    expect(totals.heldPeak['retention-slots']).toBe(192 * mib);
  });

  test('a hot set is loaded ahead and sized by what the budget leaves', async () => {
    const description = describe(opt13, 'f16');
    const profile = makeProfile(
      '',
      100,
      description.matrices
        .filter(({ role }) => role === 'second')
        .map(({ id, inputs }) => ({
          id,
          counts: Array.from({ length: inputs }, (_, neuron) => (neuron % 10 === 0 ? 90 : neuron % 3)),
          repeats: 0,
        })),
    );
    const retain = { kind: 'hot', profile } as const;
    const none = planPlacement(request(description, 'retention', { retain }));
    const least = none.minimumBytes;
    expect(planPlacement(request(description, 'retention', { retain, budgetBytes: least })).notes).toEqual([
      'the budget leaves no bytes for a hot set: every active row moves',
    ]);
    const dense = none.totalBytes - 24 * 8192 * 4096; // all but the hot rows
    const budgetBytes = dense + 5 * 24 * 4096 + 4095;
    const placement = planPlacement(request(description, 'retention', { retain, budgetBytes }));
    const rows = placement.matrices.reduce((sum, { keptRows }) => sum + keptRows, 0);
    expect(rows).toBe(5 * 24);
    expect(placement.moved.activeShareSource).toBe('default');
    const backend = openNull({ activeRows: () => [0, 1, 2, 10, 8190] });
    const ledger = new Ledger();
    const prepared = emptyTensors(description);
    const source = await openWeightSource({ placement, backend, prepared, ledger, profile });
    const drive = driver({ description, backend, source, maxRows: placement.maxRows });
    await drive.pass('decode', [5]);
    // Neurons 0, 10, 20, 30, 40 of the first layers are the hottest: the budget ends before the last ones.
    const { movedRows, held } = ledger.totals();
    expect(movedRows['retention-hits'] + movedRows['retention-misses']).toBe(24 * 5);
    expect(held['retention-resident']).toBe(5 * 24 * 4096);
    expect(held['retention-index']).toBe(24 * 8192 * 4);
    await source.close();
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
        judgedRows: 0,
        uncertainRows: 0,
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
