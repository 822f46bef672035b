import { expect, describe as group, test } from 'vitest';
import {
  byUse,
  makeProfile,
  parseProfile,
  profileDigest,
  profileText,
  requireProfileOf,
} from '../../src/acquire/activation-profile.js';
import { choosePolicy } from '../../src/acquire/choose.js';
import { comparePolicies } from '../../src/acquire/compare.js';
import { activityOf, RowExpectation } from '../../src/acquire/expected-rows.js';
import { type PlacementRequest, planPlacement } from '../../src/acquire/plan.js';
import { exactPolicyNames, isExact, policies } from '../../src/acquire/policies.js';
import { type PolicyName, policyNames } from '../../src/acquire/policy.js';
import { type MachineRates, priceToken } from '../../src/acquire/price.js';
import { parseRetain } from '../../src/acquire/retain-rows.js';
import { surveyModel } from '../../src/acquire/survey.js';
import { describe, emptyPrepared, optConfig } from './support/opt-shape.js';
import { noRates } from './support/rates.js';

const checkpoint = 'ab'.repeat(32);
const sample = makeProfile(checkpoint, 10, [
  { id: 'layers.0.second', counts: [10, 0, 3, 3], repeats: 9 },
  { id: 'layers.1.second', counts: [1, 2, 0, 0], repeats: 0 },
]);

group('profile files', () => {
  test('come back as they were, by one digest', () => {
    const text = profileText(sample);
    expect(parseProfile(text, 'p.json')).toEqual(sample);
    expect(profileDigest(parseProfile(text, 'p.json'))).toBe(profileDigest(sample));
    expect(sample.coverage.slice(-3)).toEqual([
      { rows: 4, uses: 18 },
      { rows: 6, uses: 19 },
      { rows: 8, uses: 19 },
    ]);
  });

  test.each<[string, (profile: typeof sample) => unknown]>([
    ['another version', (profile) => ({ ...profile, version: 2 })],
    ['no tokens', (profile) => ({ ...profile, tokens: 0 })],
    ['more uses than tokens', (profile) => ({ ...profile, tokens: 9 })],
    ['a changed curve', (profile) => ({ ...profile, coverage: profile.coverage.slice(1) })],
    ['a matrix twice', (profile) => ({ ...profile, matrices: [profile.matrices[0], profile.matrices[0]] })],
    [
      'more repeats than uses',
      ({ matrices, ...rest }) => ({
        ...rest,
        matrices: [{ ...matrices[0], repeats: 17 }, matrices[1]],
      }),
    ],
    ['an unknown field', (profile) => ({ ...profile, more: 1 })],
  ])('with %s are refused', (_, change) => {
    expect(() => parseProfile(JSON.stringify(change(sample)), 'p.json')).toThrowError(
      expect.objectContaining({ code: 'bad-profile' }),
    );
  });

  test('of other weights or shapes are refused', () => {
    const neurons = new Map([
      ['layers.0.second', 4],
      ['layers.1.second', 4],
    ]);
    expect(() => requireProfileOf(sample, { sourceDigest: checkpoint, neurons })).not.toThrow();
    for (const model of [
      { sourceDigest: 'cd'.repeat(32), neurons },
      { sourceDigest: checkpoint, neurons: new Map([['layers.0.second', 4]]) },
      { sourceDigest: checkpoint, neurons: new Map([...neurons, ['layers.1.second', 5]]) },
    ]) {
      expect(() => requireProfileOf(sample, model)).toThrowError(
        expect.objectContaining({ code: 'profile-of-other-model' }),
      );
    }
  });

  test('order neurons by use, equal ones by number', () => {
    expect(Array.from(byUse([3, 9, 3, 0, 9]))).toEqual([1, 4, 0, 2, 3]);
  });
});

test.each([
  ['lru:1024', { kind: 'lru', rowsPerMatrix: 1024 }],
  ['hot:auto', { kind: 'hot' }],
  ['lru:0', null],
  ['lru:', null],
  ['hot', null],
  ['lru:1e3', null],
] as const)('--retain %s', (text, wanted) => expect(parseRetain(text)).toEqual(wanted));

group('expected bytes of rows', () => {
  const description = describe(
    optConfig({ hiddenSize: 64, ffnSize: 256, layers: 1, heads: 2, vocabSize: 50 }),
    'f32',
  );
  const tensor = (id: string) => emptyPrepared(description).tensor(id);
  const second = surveyModel(description, tensor, policies.packets).matrices.find(
    ({ treatment }) => treatment === 'packets',
  )!;
  const rowBytes = 64 * 4;
  // Half of the first block always, nothing of the second.
  const counts = Array.from({ length: 256 }, (_, neuron) => (neuron < 64 ? 10 : 0));
  const profile = makeProfile(checkpoint, 10, [{ id: second.description.id, counts, repeats: 576 }]);
  const known = activityOf(undefined, profile);
  const guessed = activityOf(0.25, null);
  const lru = { kind: 'lru', rowsPerMatrix: 64 } as const;

  test.each([
    ['packets', 0, 64, 64],
    ['packets', 128, 32, 32],
    ['staged', 0, 64 * (1 + 8 / rowBytes), 64 * (1 + 8 / rowBytes)],
    ['extents', 0, 256 * (1 - 0.75 ** 128), 128],
    ['forecast', 0, 64 * 1.5, 64 * 1.1],
    ['retained', 64, 48, 0],
  ] as const)('%s with %d kept rows', (path, kept, uniform, recorded) => {
    expect(new RowExpectation(path, lru, guessed).bytes(second, kept) / rowBytes).toBeCloseTo(uniform, 9);
    expect(new RowExpectation(path, lru, known).bytes(second, kept) / rowBytes).toBeCloseTo(recorded, 9);
  });

  test('an LRU keeps what is used often', () => {
    const zipf = Array.from({ length: 256 }, (_, rank) => Math.ceil(1000 / (rank + 1)));
    const record = makeProfile(checkpoint, 1000, [{ id: second.description.id, counts: zipf, repeats: 0 }]);
    const expectation = new RowExpectation('retained', lru, activityOf(undefined, record));
    const active = zipf.reduce((sum, uses) => sum + uses / 1000, 0);
    const missed = [1, 16, 64, 255, 256].map((kept) => expectation.bytes(second, kept) / rowBytes / active);
    for (const [index, share] of missed.entries()) {
      if (index > 0) expect(share).toBeLessThan(missed[index - 1]!);
    }
    expect(missed.at(-1)).toBe(0);
    // Better than a random choice of as many rows, worse than the best.
    expect(missed[2]).toBeLessThan(1 - 64 / 256);
    const best = zipf.slice(64).reduce((sum, uses) => sum + uses / 1000, 0) / active;
    expect(missed[2]).toBeGreaterThan(best);
  });

  test('a comparison prices every policy, and those that do not fit', () => {
    const whole = {
      description,
      tensor,
      policy: 'resident',
      budgetBytes: Infinity,
      fixed: [],
      maxRows: 4,
    } as const;
    const request = {
      description,
      tensor,
      policy: 'phase',
      budgetBytes: planPlacement(whole).minimumBytes - 1,
      fixed: [],
      maxRows: 4,
      link: { denseBytesPerSecond: 1e9, rowBytesPerSecond: 1e8 },
    } as const;
    const priced = comparePolicies(request);
    expect(priced.map(({ policy }) => policy)).toEqual([...policyNames]);
    for (const { policy, placement, minimumBytes } of priced) {
      expect(placement === null).toBe(minimumBytes > request.budgetBytes);
      if (placement === null) continue;
      const { budgetBytes, ...rest } = request;
      expect(placement).toEqual(planPlacement({ ...rest, policy, budgetBytes }));
      const { denseDecodeBytes, expectedPacketBytes, embeddingBytes } = placement.moved;
      const atRowRate = (policy === 'extents' ? 0 : expectedPacketBytes) + embeddingBytes;
      const atDenseRate = denseDecodeBytes + (policy === 'extents' ? expectedPacketBytes : 0);
      expect(placement.predictedMsPerToken).toBeCloseTo(atRowRate / 1e5 + atDenseRate / 1e6, 9);
    }
    const fitting = priced.filter(({ placement }) => placement !== null).map(({ policy }) => policy);
    expect(fitting).toEqual(expect.arrayContaining(['stream', 'extents', 'packets', 'forecast', 'phase']));
    expect(fitting).not.toContain('resident');
    expect(fitting).not.toContain('resident-sparse');
  });

  test('auto takes what is expected to be fastest for new tokens, by the rates it is given', async () => {
    let rates: MachineRates = {
      ...noRates,
      denseBytesPerSecond: 1e6,
      rowBytesPerSecond: 1e5,
      computeBytesPerSecond: 1e9,
      certifyBytesPerSecond: 5e8,
    };
    let measured = 0;
    const choose = (more: Partial<PlacementRequest>, uncertified: string | null = 'none is written') =>
      choosePolicy(
        { ...request, ...more },
        async () => {
          measured += 1;
          return rates;
        },
        uncertified,
      );
    const request = {
      description,
      tensor,
      policy: 'phase',
      fixed: [],
      maxRows: 4,
      budgetBytes: Infinity,
    } as const;
    const all = planPlacement({ ...request, policy: 'resident-sparse' });
    const held = await choose({ budgetBytes: all.minimumBytes });
    expect(held.request.policy).toBe('resident-sparse');
    expect([held.choice.rates, measured]).toEqual([null, 0]); // where there is no choice nothing is measured
    const budgetBytes = all.minimumBytes - 1;
    const msBy = (policy: PolicyName, budget: number) =>
      priceToken(planPlacement({ ...request, policy, budgetBytes: budget }), rates, false).totalMs;
    const { minimumBytes } = planPlacement(request);
    for (const budget of [minimumBytes, budgetBytes]) {
      const { choice } = await choose({ budgetBytes: budget });
      const [byPhase, byPackets] = [msBy('phase', budget), msBy('packets', budget)];
      expect(choice.policy).toBe(byPackets < byPhase * (1 - 1 / 32) ? 'packets' : 'phase');
      expect(choice.prices).toEqual([
        { policy: 'phase', msPerToken: byPhase },
        { policy: 'packets', msPerToken: byPackets },
      ]);
      expect(choice.reason).toContain('the model does not fit');
      expect(choice.leftOut).toEqual([
        { policy: 'retention', reason: 'there is no activation profile to choose a hot set by' },
        { policy: 'certified', reason: 'none is written' },
      ]);
    }
    // Where only a low-bit copy of the first projections fits, or where it saves enough of what would stream.
    const least = planPlacement({ ...request, policy: 'certified' }).minimumBytes;
    expect(least).toBeLessThan(minimumBytes);
    for (const [budget, rowBytesPerSecond] of [
      [least, 1e6],
      [minimumBytes, 1e6],
      [minimumBytes, 1e5],
    ] as const) {
      rates = { ...rates, rowBytesPerSecond };
      const { choice } = await choose({ budgetBytes: budget }, null);
      const small = budget < minimumBytes ? ['phase', 'packets'] : [];
      expect(choice.leftOut.map(({ policy }) => policy)).toEqual(['retention', ...small]);
      if (small.length > 0) expect(choice.leftOut[1]!.reason).toContain(`${minimumBytes} bytes`);
      expect(choice.prices).toContainEqual({ policy: 'certified', msPerToken: msBy('certified', budget) });
      const fastest = Math.min(...choice.prices.map(({ msPerToken }) => msPerToken!));
      expect(msBy(choice.policy, budget) * (1 - 1 / 32)).toBeLessThanOrEqual(fastest);
    }
    const alone = await choose({ budgetBytes: least }, null);
    expect([alone.choice.policy, alone.request.policy]).toEqual(['certified', 'certified']);
    rates = { ...rates, rowBytesPerSecond: 1e5 };
    // Half of the uses by rows that a hot set holds, whichever rows come first in a text.
    const chosen = await choose({ budgetBytes, profile });
    expect(chosen.request).toMatchObject({ policy: 'retention', retain: { kind: 'hot' } });
    const prices = comparePolicies({ ...request, budgetBytes, profile }).flatMap(({ placement }) =>
      placement === null ? [] : [placement.moved.expectedBytes],
    );
    expect(planPlacement(chosen.request).moved.expectedBytes).toBe(Math.min(...prices));
    expect((await choose({ budgetBytes: 1 })).request.policy).toBe('phase');
    // Whatever is fastest, other numbers than the checkpoint's are never taken.
    const quantised = planPlacement({ ...request, policy: 'resident-q4' });
    expect(quantised.totalBytes).toBeLessThan(budgetBytes);
    expect(
      (await choose({ budgetBytes: quantised.totalBytes })).choice.prices.map(({ policy }) =>
        isExact(policy),
      ),
    ).not.toContain(false);
  });

  test('prices add up, and overlap hides no more than there is', () => {
    const request = {
      description,
      tensor,
      fixed: [],
      maxRows: 4,
      budgetBytes: Infinity,
      keepRows: false,
    } as const;
    for (const policy of exactPolicyNames) {
      const placement = planPlacement({ ...request, policy });
      for (const overlapShare of [0, 0.5, 1]) {
        const price = priceToken(
          placement,
          {
            ...noRates,
            denseBytesPerSecond: 3e6,
            rowBytesPerSecond: 2e5,
            computeBytesPerSecond: 5e6,
            certifyBytesPerSecond: 4e6,
            layerSeconds: 1e-6,
            overlapShare,
            roundTripSeconds: 1e-4,
            logitsSeconds: 1e-5,
          },
          false,
        );
        const { computeMs, denseMs, rowsMs, hiddenMs, hostMs, totalMs } = price;
        expect(totalMs).toBeCloseTo(computeMs + denseMs + rowsMs + hostMs - hiddenMs, 9);
        expect(hiddenMs).toBeLessThanOrEqual(Math.min(computeMs, denseMs + rowsMs) + 1e-9);
        if (overlapShare === 0) expect(hiddenMs).toBeCloseTo(0, 9);
      }
    }
  });
});
