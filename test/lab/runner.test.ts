import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WaybillError } from '../../src/base/errors.js';
import { evaluateRun } from '../../src/lab/evaluation.js';
import type { Gate } from '../../src/lab/gate-schema.js';
import type { TrialRecord } from '../../src/lab/record-format.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { resumeRun, runProtocol } from '../../src/lab/runner.js';
import { selectTrials } from '../../src/lab/selection.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { sessionArm } from './support/sample-protocol.js';

let bench: Bench;
beforeAll(async () => {
  bench = await openBench();
});
afterAll(() => bench.close());

let runs = 0;
const place = () => ({ runPath: join(bench.folder, `run-${++runs}`), leaseFolder: bench.leaseFolder });
const trialsOf = async (path: string): Promise<TrialRecord[]> =>
  (await readRunFolder(path)).records.filter((record) => record.kind === 'trial');
const codeOf = (error: WaybillError): string => error.code;

describe('a run in this process', () => {
  test('passes its gates, leaves a chain of whole records and nothing else', async () => {
    const protocolPath = await bench.freeze(liveProtocol(bench));
    const { runPath, leaseFolder } = place();
    const seen: string[] = [];
    const evaluation = await runProtocol(
      { protocolPath, runPath, leaseFolder },
      { onTrial: ({ phase, arm }, done, total) => seen.push(`${done}/${total} ${phase} ${arm}`) },
    );
    expect(evaluation.gates.map(({ name, verdict, reason }) => [name, verdict, reason])).toEqual([
      ['same bits', 'pass', expect.stringContaining('positions are equal')],
      ['fewer bytes', 'pass', expect.any(String)],
      ['all trials', 'pass', 'all 2 blocks were completed'],
      ['nothing left', 'pass', expect.any(String)],
    ]);
    expect(evaluation).toMatchObject({ exitCode: 0, verdict: 'pass', deviations: [], violations: [] });
    expect(seen).toHaveLength(6);
    expect((await readdir(runPath)).sort()).toEqual([
      'local.json',
      'manifest.json',
      'protocol.yaml',
      'records',
      'salt',
    ]);
    expect((await stat(join(runPath, 'salt'))).mode & 0o777).toBe(0o600);
    expect(await readdir(leaseFolder)).toEqual([]);
    const trials = await trialsOf(runPath);
    expect(trials.filter(({ fresh }) => fresh)).toHaveLength(2);
    for (const trial of trials) {
      expect(trial.requests.map(({ newTokens, logitsDigests }) => [newTokens, logitsDigests.length])).toEqual(
        [
          [3, 3],
          [3, 3],
        ],
      );
      expect(trial.requests[0]).not.toHaveProperty('content');
      expect(trial.samples.length).toBeGreaterThan(0);
      expect(BigInt(trial.peaks.heldBytes!)).toBeGreaterThan(0n);
    }
    // The evaluation is of the disk: reading it again gives the same
    const { protocolFile, manifest, records } = await readRunFolder(runPath);
    expect(evaluateRun(protocolFile.protocol, manifest, records)).toEqual(evaluation);
    // What computed is a subject, too: the kernels that each trial says it ran
    for (const record of records) {
      if (record.kind !== 'trial') continue;
      const { kernels, kernelDigest } = record.arm;
      expect(kernelDigest).toMatch(/^[0-9a-f]{64}$/);
      const name = `kernels/${kernels!.replaceAll(' ', '-')}`;
      expect(manifest.subjects[record.slot.arm]).toContainEqual({ name, sha256: kernelDigest });
    }
  });

  test('stops at the first logit that differs, and fails', async () => {
    // Keys and values in F16 and in F32 round differently; claiming one group is claiming too much
    const arms = [sessionArm('half'), sessionArm('single', { kv: 'f32' })];
    const gates: Gate[] = [
      { name: 'same', family: 'faithfulness', check: 'bit-equal', arms: ['half', 'single'] },
    ];
    const protocolPath = await bench.freeze(liveProtocol(bench, { arms, gates }));
    const where = place();
    const evaluation = await runProtocol({ protocolPath, ...where });
    expect(evaluation).toMatchObject({ exitCode: 1, verdict: 'fail', status: 'different' });
    const trials = await trialsOf(where.runPath);
    expect(trials).toHaveLength(2);
    expect(trials[1]).toMatchObject({ status: 'different', difference: { what: 'logits', request: 0 } });
    const { index } = trials[1]!.difference!;
    expect(trials[1]!.requests[0]!.newTokens).toBe(index! + 1);
    await expect(resumeRun(where).catch(codeOf)).resolves.toBe('run-ended');
  });

  test('uses a reference, first or last, and closes it', async () => {
    for (const when of ['first', 'last'] as const) {
      const reference = { arm: sessionArm('resident', { policy: 'resident' }), when };
      const protocolPath = await bench.freeze(liveProtocol(bench, { reference }));
      const evaluation = await runProtocol({ protocolPath, ...place() });
      expect(evaluation).toMatchObject({ exitCode: 0 });
    }
  });

  test('as A/A runs every arm as the first', async () => {
    const protocolPath = await bench.freeze(liveProtocol(bench));
    const where = place();
    const evaluation = await runProtocol({ protocolPath, ...where, variant: 'aa' });
    expect(evaluation.gates).toEqual([]);
    expect(new Set((await trialsOf(where.runPath)).map(({ arm }) => arm.policy))).toEqual(
      new Set(['stream']),
    );
  });
});

describe('a run that is broken off', () => {
  test('by an abort is inconclusive with exit code 130, and resumes by repeating the broken block', async () => {
    const protocolPath = await bench.freeze(liveProtocol(bench));
    const where = place();
    const controller = new AbortController();
    const interrupted = await runProtocol(
      { protocolPath, ...where },
      { signal: controller.signal, onTrial: (_, done) => done === 3 && controller.abort() },
    );
    expect(interrupted).toMatchObject({ exitCode: 130, verdict: 'inconclusive', status: 'interrupted' });
    const before = await trialsOf(where.runPath);
    expect(before.at(-1)).toMatchObject({ status: 'interrupted', slot: { block: 0, position: 1 } });

    const resumed = await resumeRun(where);
    expect(resumed).toMatchObject({ exitCode: 0, verdict: 'pass', violations: [] });
    expect(resumed.deviations.join()).toContain('resumed');
    const after = await trialsOf(where.runPath);
    expect(after.slice(0, before.length)).toEqual(before);
    expect(after.filter(({ slot }) => slot.block === 0).map(({ attempt }) => attempt)).toEqual([1, 1, 2, 2]);
    expect(after.filter(({ slot }) => slot.phase === 'warm-up').map(({ attempt }) => attempt)).toEqual([
      1, 1, 2, 2,
    ]);
    expect(new Set(after.map(({ process }) => process))).toEqual(new Set([0, 1]));
    await expect(resumeRun(where).catch(codeOf)).resolves.toBe('run-ended');
  });

  test('is read after a kill that left a draft, and refused when a record was touched', async () => {
    const protocolPath = await bench.freeze(liveProtocol(bench));
    const where = place();
    const controller = new AbortController();
    await runProtocol(
      { protocolPath, ...where },
      { signal: controller.signal, onTrial: (_, done) => done === 4 && controller.abort() },
    );
    const draft = join(where.runPath, 'records', '.000099.json.aa.tmp');
    await writeFile(draft, '{"half');
    const path = join(where.runPath, 'records', '000002.json');
    const whole = await readFile(path, 'utf8');
    await writeFile(path, whole.replace('"attempt":1', '"attempt":2'));
    await expect(resumeRun(where).catch(codeOf)).resolves.toBe('broken-chain');
    await writeFile(path, whole);
    expect(await resumeRun(where)).toMatchObject({ exitCode: 0 });
    const { protocolFile, manifest, records } = await readRunFolder(where.runPath);
    expect(selectTrials(manifest, records).status).toBe('completed');
    expect(protocolFile.protocol.name).toBe('sample');
  });
});

describe('a run is refused before its folder is made', () => {
  const refused = async (changes: Parameters<typeof liveProtocol>[1], edit = (text: string) => text) => {
    const protocolPath = await bench.freeze(liveProtocol(bench, changes));
    await writeFile(protocolPath, edit(await readFile(protocolPath, 'utf8')));
    const where = place();
    const code = await runProtocol({ protocolPath, ...where }).then(() => 'accepted', codeOf);
    expect(await stat(where.runPath).catch(() => null)).toBeNull();
    return code;
  };

  test('for a changed or unfrozen protocol, another model, another program', async () => {
    expect(await refused({}, (text) => text.replace('seed: 7', 'seed: 8'))).toBe('protocol-changed');
    expect(await refused({}, (text) => text.slice(0, text.indexOf('frozen:')))).toBe('not-frozen');
    expect(await refused({ model: { path: bench.model, sourceDigest: 'b'.repeat(64) } })).toBe(
      'model-changed',
    );
    expect(await refused({ program: { atLeast: '7.0.0', below: '8.0.0' } })).toBe('program-outside-range');
    const missing = { supersedes: { digest: 'c'.repeat(64), reason: 'a wrong bound' } };
    expect(await refused(missing)).toBe('superseded-protocol-missing');
  });

  test('for an arm that does not fit its allowance, or prompts that do not fit the context', async () => {
    const arms = [sessionArm('stream', { budget: '1KiB' }), sessionArm('packets')];
    expect(await refused({ arms })).toMatch(/budget/);
    const short = [sessionArm('stream', { contextPositions: 5 }), sessionArm('packets')];
    expect(await refused({ arms: short })).toBe('context-too-short');
  });

  test('into a folder that is not empty', async () => {
    const protocolPath = await bench.freeze(liveProtocol(bench));
    const code = await runProtocol({ protocolPath, ...place(), runPath: bench.folder }).then(
      () => '',
      codeOf,
    );
    expect(code).toBe('run-exists');
  });
});
