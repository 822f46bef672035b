import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WaybillError } from '../../src/base/errors.js';
import { trialMetric } from '../../src/lab/metrics.js';
import type { CommandArm, Protocol } from '../../src/lab/protocol-schema.js';
import type { RunRecord, TrialRecord } from '../../src/lab/record-format.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { runProtocol } from '../../src/lab/runner.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';

let bench: Bench;
beforeAll(async () => {
  bench = await openBench();
});
afterAll(() => bench.close());

const script = resolve('test/lab/support/echo-arm.mjs');

function commandArm(name: string, behaviour: string, changes: Partial<CommandArm> = {}): CommandArm {
  return {
    kind: 'command',
    name,
    group: 'echo',
    command: [process.execPath, script, behaviour],
    files: [script],
    timeoutSeconds: 20,
    ...changes,
  };
}

let runs = 0;

async function run(behaviour: string, changes: Partial<Protocol> = {}, arm: Partial<CommandArm> = {}) {
  const { model: _, ...protocol } = liveProtocol(bench, {
    arms: [commandArm('theirs', 'good'), commandArm('changed', behaviour, arm)],
    gates: [
      { name: 'bits', family: 'faithfulness', check: 'bit-equal', arms: ['changed'] },
      { name: 'tokens', family: 'faithfulness', check: 'tokens-equal', arms: ['changed'] },
      { name: 'nothing left', family: 'resources', check: 'clean-end' },
    ],
    ...changes,
  });
  const protocolPath = await bench.freeze(protocol);
  const runPath = join(bench.folder, `run-${++runs}`);
  const evaluation = await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder });
  const { records, manifest } = await readRunFolder(runPath);
  const trials = records.filter((record: RunRecord): record is TrialRecord => record.kind === 'trial');
  return { evaluation, trials, manifest };
}

const verdicts = ({ evaluation }: Awaited<ReturnType<typeof run>>) =>
  evaluation.gates.map(({ verdict }) => verdict);

describe('an external command as an arm', () => {
  test('that waits 20 ms before each answer is found to be slower', async () => {
    const gate = {
      name: 'not slower',
      family: 'runtime',
      check: 'ratio-at-most',
      arm: 'changed',
      against: 'theirs',
      metric: 'prefill-ns', // as the programs tell it: a busy machine delays whole episodes by more
      bound: '1.00',
      confidence: 0.95,
    } as const;
    const schedule = { seed: 3, blocks: 10, order: 'balanced', warmUps: 1 } as const;
    const { evaluation } = await run('late', { schedule, gates: [gate] });
    expect(evaluation.gates[0]).toMatchObject({ verdict: 'fail', effect: { pairs: 10 } });
  });

  test('is qualified without any model of ours', async () => {
    const result = await run('good');
    expect(verdicts(result)).toEqual(['pass', 'pass', 'pass']);
    expect(result.trials[0]!.arm.backend).toBe('echo');
    expect(result.manifest.subjects.theirs![0]!.sha256).toMatch(/^[0-9a-f]{64}$/);
    const measured = result.trials.find(({ slot }) => slot.phase === 'measured')!;
    expect(trialMetric(measured, 'moved-bytes')).toBe(100n);
    expect(trialMetric(measured, 'peak-held-bytes')).toBe(77n);
    expect(trialMetric(measured, 'decode-call-ns')).toBe(6n);
    expect(trialMetric(measured, 'decode-ns')).toBeNull();
    expect(trialMetric(measured, 'device-read-bytes')).toBeNull();
    expect(trialMetric(measured, 'episode-ns')!).toBeGreaterThan(0n);
  });

  test('in a process a trial sets up each time', async () => {
    const schedule = { seed: 1, blocks: 2, order: 'balanced', warmUps: 0 } as const;
    const { evaluation, trials } = await run('good', { isolation: 'process-per-trial', schedule });
    expect(evaluation.exitCode).toBe(0);
    expect(trials.every(({ fresh, times }) => fresh && times.setupNs !== null)).toBe(true);
    expect(new Set(trials.map(({ process }) => process)).size).toBe(trials.length);
  });

  test('whose digests drift fails, and stops there', async () => {
    const result = await run('drift');
    expect(verdicts(result)[0]).toBe('fail');
    expect(result.evaluation).toMatchObject({ status: 'different', exitCode: 1 });
    expect(result.trials.at(-1)!.difference).toMatchObject({ what: 'logits', request: 0, index: 1 });
  });

  test('without digests has unmeasured bits, and tokens that can be judged', async () => {
    expect(verdicts(await run('bare'))).toEqual(['unmeasured', 'pass', 'pass']);
  });

  test.each([
    ['crash', 'command-ended', /exit code 9.*out of luck/],
    ['garbage', 'command-contract', /begins with "\[1, 2"/],
  ])('that goes wrong (%s) fails its trial, and keeps the record', async (behaviour, code, message) => {
    const { evaluation, trials } = await run(behaviour);
    expect(trials.at(-1)).toMatchObject({
      status: 'failed',
      error: { code, message: expect.stringMatching(message) },
    });
    expect(evaluation).toMatchObject({ status: 'failed', exitCode: 4 });
    expect(evaluation.gates.at(-1)!.figures.childrenLeft).toBe('0');
  });

  test('that hangs is killed at its timeout', async () => {
    const { trials, evaluation } = await run('hang', {}, { timeoutSeconds: 1 });
    expect(trials.at(-1)).toMatchObject({ status: 'failed', error: { code: 'command-timeout' } });
    expect(evaluation.gates.at(-1)!.figures.childrenLeft).toBe('0');
  });

  test('that cannot be started is told of', async () => {
    const { trials } = await run('good', {}, { command: [join(bench.folder, 'no-such-program')] });
    expect(trials.at(-1)).toMatchObject({ status: 'failed', error: { code: 'command-not-started' } });
  });

  test('whose files are missing is refused before the run', async () => {
    const code = await run('good', {}, { files: ['no-such-file'] }).then(
      () => '',
      (error: WaybillError) => error.code,
    );
    expect(code).toBe('unreadable-file');
  });
});
