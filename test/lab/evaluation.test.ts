import { describe, expect, test } from 'vitest';
import { uniform } from '../../src/base/philox.js';
import { evaluateRun } from '../../src/lab/evaluation.js';
import { exitCodeOf } from '../../src/lab/exit-codes.js';
import type { Gate } from '../../src/lab/gate-schema.js';
import type { Verdict } from '../../src/lab/gates.js';
import { trialMetric, trialMetrics } from '../../src/lab/metrics.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import type { Slot, TrialRecord } from '../../src/lab/record-format.js';
import { selectTrials } from '../../src/lab/selection.js';
import { sampleProtocol, sessionArm } from './support/sample-protocol.js';
import {
  chained,
  sampleEnd,
  sampleManifest,
  sampleResume,
  sampleTrial,
  wholeRun,
} from './support/sample-run.js';

/** About a second, with 0.2 % of seeded noise; "packets" takes `factor` times as long. */
const timed =
  (factor: number) =>
  ({ arm }: Slot, index: number): bigint =>
    BigInt(Math.round(1e9 * (arm === 'packets' ? factor : 1) * (1 + 0.002 * uniform(4, index, 0))));

const isPackets = ({ slot }: TrialRecord): boolean => slot.arm === 'packets';
const fewerRows = (trial: TrialRecord): TrialRecord =>
  isPackets(trial)
    ? { ...trial, bytes: { ...trial.bytes, moved: { ...trial.bytes.moved, 'dense-weights': '300' } } }
    : trial;

function verdicts(
  protocol: Protocol,
  factor = 0.9,
  change: (trial: TrialRecord, index: number) => TrialRecord = fewerRows,
): Record<string, Verdict> {
  const { manifest, records } = wholeRun(protocol, timed(factor), change);
  return Object.fromEntries(
    evaluateRun(protocol, manifest, records).gates.map(({ name, verdict }) => [name, verdict]),
  );
}

const withGates = (...gates: Gate[]): Protocol => sampleProtocol({ gates });

describe('metrics of a trial', () => {
  const slot: Slot = { phase: 'measured', block: 0, position: 0, arm: 'stream', item: 0 };
  const trial = sampleTrial(slot, 1_000n);

  test('are recomputed from its raw record', () => {
    expect(trialMetrics(trial)).toMatchObject({
      'episode-ns': 1000n,
      'time-to-first-token-ns': 101n,
      'prefill-ns': 200n,
      'decode-ns': 400n,
      'decode-call-ns': 200n,
      'outside-call-ns': 600n,
      'recording-ns': 5n,
      'setup-ns': null,
      'moved-bytes': 636n,
      'moved-bytes.packet-rows': 30n,
      'moved-bytes.indices': null,
      'peak-held-bytes': 5000n,
      'peak-resident-set-bytes': 9000n,
      'sampled-resident-set-bytes': 8000n,
      'peak-device-used-bytes': null,
      'new-tokens': 6n,
      'prompt-tokens': 8n,
    });
  });

  test('of setup leave out what a GPU only has within reach', () => {
    const setupMoved = { setup: '40', 'host-mirror': '7' };
    const first = { ...trial, fresh: true, bytes: { ...trial.bytes, setupMoved } };
    expect(trialMetric(first, 'setup-moved-bytes')).toBe(40n);
    expect(trialMetric({ ...first, fresh: false }, 'setup-moved-bytes')).toBeNull();
  });

  test('of a clock that stepped back are unmeasured', () => {
    const back = { ...trial, times: { ...trial.times, beganNs: '2000', endedNs: '1000' } };
    expect(trialMetric(back, 'episode-ns')).toBeNull();
    expect(trialMetric(back, 'outside-call-ns')).toBeNull();
  });

  test('that one request lacks are unmeasured, not the sum of the others', () => {
    const [first, second] = trial.requests;
    const partial = {
      ...trial,
      requests: [first!, { ...second!, prefillNs: null, timeToFirstTokenNs: null, decodeStepNs: [] }],
    };
    expect(trialMetric(partial, 'prefill-ns')).toBeNull();
    expect(trialMetric(partial, 'time-to-first-token-ns')).toBeNull();
    expect(trialMetric(partial, 'decode-call-ns')).toBeNull();
    expect(trialMetric({ ...trial, requests: [] }, 'prefill-ns')).toBeNull();
  });
});

describe('gates', () => {
  test('pass where everything holds', () => {
    expect(verdicts(sampleProtocol())).toEqual({
      'same bits': 'pass',
      'fewer bytes': 'pass',
      'not slower': 'pass',
    });
    const { manifest, records } = wholeRun(sampleProtocol(), timed(0.9), fewerRows);
    expect(evaluateRun(sampleProtocol(), manifest, records)).toMatchObject({
      verdict: 'pass',
      exitCode: 0,
      deviations: [],
    });
  });

  test('on time fail when slower, and are inconclusive when the interval crosses the bound', () => {
    expect(verdicts(sampleProtocol(), 1.1)['not slower']).toBe('fail');
    expect(verdicts(sampleProtocol(), 1)['not slower']).toBe('inconclusive');
  });

  test('on bits fail at one differing digest, of a warm-up too, and know a missing one', () => {
    const changed = (index: number) => (trial: TrialRecord, at: number) =>
      at !== index
        ? trial
        : {
            ...trial,
            requests: trial.requests.map((request) => ({
              ...request,
              logitsDigests: request.logitsDigests.map(() => 'f'.repeat(64)),
            })),
          };
    expect(verdicts(sampleProtocol(), 0.9, changed(0))['same bits']).toBe('fail'); // a warm-up
    expect(verdicts(sampleProtocol(), 0.9, changed(15))['same bits']).toBe('fail');
    const bare = (trial: TrialRecord) =>
      isPackets(trial)
        ? { ...trial, requests: trial.requests.map((request) => ({ ...request, logitsDigests: [] })) }
        : trial;
    expect(verdicts(sampleProtocol(), 0.9, bare)['same bits']).toBe('unmeasured');
    const tokens: Gate = { name: 'tokens', family: 'faithfulness', check: 'tokens-equal', arms: ['packets'] };
    expect(verdicts(withGates(tokens), 0.9, bare)).toEqual({ tokens: 'pass' });
    const others = (trial: TrialRecord) => ({
      ...trial,
      requests: trial.requests.map((request) => ({
        ...request,
        tokenIdsDigest: isPackets(trial) ? 'e'.repeat(64) : request.tokenIdsDigest,
      })),
    });
    expect(verdicts(withGates(tokens), 0.9, others)).toEqual({ tokens: 'fail' });
  });

  test('compare with the reference of the item, wherever it comes', () => {
    for (const when of ['first', 'last'] as const) {
      const protocol = sampleProtocol({
        reference: { arm: sessionArm('resident', { policy: 'resident' }), when },
        gates: [{ name: 'same', family: 'faithfulness', check: 'bit-equal', arms: ['packets'] }],
      });
      expect(verdicts(protocol)).toEqual({ same: 'pass' });
      const wrong = (trial: TrialRecord) =>
        trial.slot.arm === 'resident' ? { ...trial, requests: trial.requests.slice(0, 1) } : trial;
      expect(verdicts(protocol, 1, wrong)).toEqual({ same: 'fail' });
    }
  });

  const bound = (limit: bigint, changes: object = {}): Gate =>
    ({
      name: 'bound',
      family: 'capacity',
      check: 'at-most',
      arm: 'packets',
      metric: 'peak-held-bytes',
      statistic: 'each',
      bound: String(limit),
      ...changes,
    }) as Gate;

  test('compare integers exactly, beyond 2^53 too', () => {
    const large = 2n ** 60n;
    const held = (trial: TrialRecord) => ({
      ...trial,
      peaks: { ...trial.peaks, heldBytes: String(large + 1n) },
    });
    expect(verdicts(withGates(bound(large + 1n)), 1, held)).toEqual({ bound: 'pass' });
    expect(verdicts(withGates(bound(large)), 1, held)).toEqual({ bound: 'fail' });
    expect(verdicts(withGates(bound(large + 1n, { check: 'at-least' })), 1, held)).toEqual({ bound: 'pass' });
    expect(verdicts(withGates(bound(large + 2n, { check: 'at-least' })), 1, held)).toEqual({ bound: 'fail' });
  });

  test('never pass on missing data; a value that breaks the bound fails all the same', () => {
    const lacking = (value: string) => (trial: TrialRecord, index: number) => ({
      ...trial,
      peaks: { ...trial.peaks, heldBytes: index === 5 || index === 6 ? null : value },
    });
    expect(verdicts(withGates(bound(10n)), 1, lacking('10'))).toEqual({ bound: 'unmeasured' });
    expect(verdicts(withGates(bound(10n)), 1, lacking('11'))).toEqual({ bound: 'fail' });
    expect(verdicts(withGates(bound(10n, { statistic: 'p95' })), 1, lacking('11'))).toEqual({
      bound: 'unmeasured',
    });
    const noTime = (trial: TrialRecord, index: number) =>
      index === 9 ? { ...trial, times: { ...trial.times, endedNs: '0' } } : trial;
    expect(verdicts(sampleProtocol(), 0.9, noTime)['not slower']).toBe('unmeasured');
    const noBytes = (trial: TrialRecord) => ({ ...trial, bytes: { ...trial.bytes, moved: {} } });
    expect(verdicts(sampleProtocol(), 0.9, noBytes)['fewer bytes']).toBe('unmeasured');
  });

  test('on shares and bytes a token are exact fractions', () => {
    const share = (limit: string): Gate => ({
      name: 'share',
      family: 'acquisition',
      check: 'share-at-most',
      arm: 'packets',
      of: 'stream',
      metric: 'moved-bytes.dense-weights',
      bound: limit,
    });
    expect(verdicts(withGates(share('0.5')))).toEqual({ share: 'pass' });
    expect(verdicts(withGates(share('0.499999999')))).toEqual({ share: 'fail' });
    const perToken = (limit: string): Gate => ({
      name: 'each token',
      family: 'acquisition',
      check: 'per-token-at-most',
      arm: 'packets',
      metric: 'moved-bytes',
      bound: limit,
    });
    expect(verdicts(withGates(perToken('56')))).toEqual({ 'each token': 'pass' }); // 336 / 6
    expect(verdicts(withGates(perToken('55')))).toEqual({ 'each token': 'fail' });
  });

  test('on the end state and completeness', () => {
    const gates: Gate[] = [
      { name: 'clean', family: 'resources', check: 'clean-end' },
      { name: 'all', family: 'resources', check: 'complete' },
    ];
    const protocol = withGates(...gates);
    expect(verdicts(protocol)).toEqual({ clean: 'pass', all: 'pass' });
    const { manifest, records } = wholeRun(protocol, timed(1));
    const end = sampleEnd({ endState: { ...sampleEnd().endState, childrenLeft: 1 } });
    const dirty = evaluateRun(protocol, manifest, chained(manifest, [...records.slice(0, -1), end]));
    expect(dirty.gates.map(({ verdict }) => verdict)).toEqual(['fail', 'pass']);
    expect(dirty.exitCode).toBe(1);
  });
});

describe('a run that is not whole', () => {
  const protocol = sampleProtocol();
  const { manifest, records } = wholeRun(protocol, timed(0.9), fewerRows);
  const evaluate = (kept: typeof records) => evaluateRun(protocol, manifest, chained(manifest, kept));
  const trials = records.slice(0, -1);

  test('is inconclusive at every point where it may be killed', () => {
    for (let kept = 0; kept < trials.length; kept++) {
      const { verdict, exitCode, gates } = evaluate(trials.slice(0, kept));
      expect([verdict, exitCode], `killed after ${kept} records`).toEqual(['inconclusive', 5]);
      expect(gates.some((gate) => gate.verdict === 'pass')).toBe(false);
    }
  });

  test('keeps a failure that its records prove', () => {
    const slow = trials.slice(0, 7).map((record) =>
      record.kind === 'trial' && isPackets(record)
        ? {
            ...record,
            requests: record.requests.map((request) => ({ ...request, tokenIdsDigest: 'd'.repeat(64) })),
          }
        : record,
    );
    expect(evaluate(slow)).toMatchObject({ verdict: 'fail', exitCode: 1 });
  });

  test('that failed is unmeasured, and that was interrupted inconclusive', () => {
    const error = { code: 'short-read', message: 'Cannot read' };
    expect(evaluate([...trials.slice(0, 6), sampleEnd({ status: 'failed', error })]).exitCode).toBe(4);
    expect(evaluate([...trials.slice(0, 6), sampleEnd({ status: 'interrupted' })]).exitCode).toBe(5);
  });

  test('is whole once resumed: the broken block is repeated, its records stay', () => {
    const warmUps = trials.slice(0, 2);
    const again = (record: (typeof trials)[number], attempt: number) =>
      ({ ...record, attempt }) as typeof record;
    const resumed = [
      ...trials.slice(0, 5), // two warm-ups, block 0, half of block 1
      sampleResume(4, 1),
      ...warmUps.map((record) => again(record, 2)),
      ...trials.slice(4, 6).map((record) => again(record, 2)),
      ...trials.slice(6),
      sampleEnd(),
    ];
    const evaluation = evaluate(resumed);
    expect(evaluation).toMatchObject({ verdict: 'pass', violations: [], exitCode: 0 });
    expect(evaluation.deviations).toHaveLength(1);
    expect(selectTrials(manifest, chained(manifest, resumed)).blocks.every((block) => block !== null)).toBe(
      true,
    );
  });

  test('that repeats a whole block, leaves one out or changes the order is no run of this program', () => {
    const repeat = [...trials, sampleResume(4, 1), ...trials.slice(0, 2), ...trials.slice(4), sampleEnd()];
    const leaveOut = [...trials.slice(0, 4), ...trials.slice(6), sampleEnd()];
    const swapped = [...trials.slice(0, 4), trials[5]!, trials[4]!, ...trials.slice(6), sampleEnd()];
    const goOn = [...trials, sampleEnd(), ...trials.slice(0, 1)];
    for (const [index, run] of [repeat, leaveOut, swapped, goOn].entries()) {
      const { violations, exitCode, gates } = evaluate(run as typeof records);
      expect(violations.length, `case ${index}`).toBeGreaterThan(0);
      expect(exitCode).toBe(6);
      expect(gates.some(({ verdict }) => verdict === 'pass')).toBe(false);
    }
  });
});

test('an A/A run gives noise floors and no verdict on gates', () => {
  const protocol = sampleProtocol();
  const { manifest, records } = wholeRun(protocol, timed(1));
  const aa = { ...manifest, variant: 'aa' as const };
  const { gates, noiseFloors, exitCode } = evaluateRun(protocol, aa, records);
  expect(gates).toEqual([]);
  expect(noiseFloors).toMatchObject([{ metric: 'episode-ns', arm: 'packets', against: 'stream' }]);
  expect(noiseFloors[0]!.floor!.share).toBeGreaterThan(0);
  expect(noiseFloors[0]!.floor!.share).toBeLessThan(0.01);
  expect(exitCode).toBe(0);
});

test('exit codes: 6, 2, 3, 130, 4, 1, 5, 0', () => {
  const order = [6, 2, 3, 130, 4, 1, 5, 0] as const;
  order.forEach((code, index) => {
    expect(exitCodeOf(['pass'], order.slice(index))).toBe(code);
  });
  expect(exitCodeOf(['pass', 'inconclusive', 'fail', 'unmeasured'])).toBe(4);
  expect(exitCodeOf(['pass', 'inconclusive', 'fail'])).toBe(1);
  expect(exitCodeOf([])).toBe(4);
});

test('the sample has the phases that the tests speak of', () => {
  const { slots } = sampleManifest(sampleProtocol());
  expect(slots.map(({ phase }) => phase)).toEqual([
    ...Array(2).fill('warm-up'),
    ...Array(20).fill('measured'),
  ]);
});
