import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { InputError } from '../../src/base/errors.js';
import { armSessionOptions, checkArmOptions } from '../../src/lab/arm-session.js';
import type { Gate } from '../../src/lab/gate-schema.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import type { Protocol, SessionArm } from '../../src/lab/protocol-schema.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { runProtocol } from '../../src/lab/runner.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { sampleProtocol, sessionArm, yamlBytes } from './support/sample-protocol.js';

const other = sessionArm('stream');
const withArm = (changes: Partial<SessionArm>): Protocol =>
  sampleProtocol({ arms: [other, sessionArm('packets', { policy: 'packets', ...changes })] });
const parsed = (changes: Partial<SessionArm>) =>
  parseProtocol(yamlBytes(withArm(changes)), 'p.yaml').protocol;

function refusal(action: () => unknown): InputError {
  try {
    action();
  } catch (error) {
    return error as InputError;
  }
  throw new Error('it was accepted');
}

describe('what an arm states', () => {
  test('becomes the options of a session, the recorder inside the allowance', () => {
    const sha256 = 'a'.repeat(64);
    const arm = sessionArm('hot', {
      policy: 'retention',
      retain: 'hot:auto',
      profile: { file: 'p.json', sha256 },
      budget: '1MiB',
    });
    expect(armSessionOptions(arm, { model: 'm', folder: '/protocols' })).toMatchObject({
      policy: 'retention',
      retain: 'hot:auto',
      profile: '/protocols/p.json',
      budgetBytes: 2 ** 20 - 32 * 1024,
    });
    expect(armSessionOptions(sessionArm('free'), { model: 'm', folder: '.' }).budgetBytes).toBe(Infinity);
  });

  test('a set of hot rows needs a profile', () => {
    const error = refusal(() => parsed({ policy: 'retention', retain: 'hot:auto' }));
    expect(error.code).toBe('protocol-invalid');
    expect(error.message).toContain('does not state "profile"');
  });

  test('a draft model is refused, and the message names what is missing', () => {
    const draft = { path: 'draft', sourceDigest: 'b'.repeat(64) };
    const error = refusal(() => parsed({ draft }));
    expect(error.code).toBe('draft-not-built');
    expect(error.message).toContain('no session of this version can use one');
  });

  test('further options are those of a session, by name and range', () => {
    expect(() => checkArmOptions(parsed({}))).not.toThrow();
    expect(refusal(() => checkArmOptions(parsed({ options: { colour: 'red' } })))).toMatchObject({
      code: 'bad-arm-option',
      message: expect.stringContaining('arm "packets": a session has no option "colour"'),
    });
    expect(refusal(() => checkArmOptions(parsed({ options: { threads: 2 } }))).message).toContain(
      'has a place of its own',
    );
    expect(
      refusal(() => checkArmOptions(parsed({ policy: 'retention', retain: 'lru:none' }))).message,
    ).toContain('"retain"');
  });

  test('foreign processes are of no interest without a GPU', () => {
    const error = refusal(() =>
      parseProtocol(yamlBytes(sampleProtocol({ foreignProcesses: 'fatal' })), 'p.yaml'),
    );
    expect(error.message).toContain('"foreignProcesses" has no effect');
  });
});

describe('arms that run', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await openBench();
  });
  afterAll(() => bench.close());

  test('in numerics that the backend does not have are refused', async () => {
    const arms = [other, sessionArm('packets', { policy: 'packets', numerics: 'native' })];
    const protocolPath = await bench.freeze(liveProtocol(bench, { arms }), 'native.yaml');
    const { folder, leaseFolder } = bench;
    await expect(
      runProtocol({ protocolPath, runPath: join(folder, 'native'), leaseFolder }),
    ).rejects.toMatchObject({ code: 'native-needs-gpu', exitCode: 2 });
  });

  test('with a profile that was changed are refused', async () => {
    await writeFile(join(bench.folder, 'protocols', 'profile.json'), '{}');
    const sha256 = createHash('sha256').update('other').digest('hex');
    const arms = [
      other,
      sessionArm('packets', { policy: 'packets', profile: { file: 'profile.json', sha256 } }),
    ];
    const protocolPath = await bench.freeze(liveProtocol(bench, { arms }), 'profiled.yaml');
    const { folder, leaseFolder } = bench;
    await expect(
      runProtocol({ protocolPath, runPath: join(folder, 'profiled'), leaseFolder }),
    ).rejects.toMatchObject({ code: 'profile-changed', exitCode: 6 });
  });

  test('have a checkpoint of their own, matched by its own digest', async () => {
    const wrong = { path: bench.model, sourceDigest: '0'.repeat(64) };
    const own = (model: SessionArm['model']) => [
      other,
      sessionArm('packets', { policy: 'packets', model: model! }),
    ];
    const { folder, leaseFolder, model, sourceDigest } = bench;
    const refused = await bench.freeze(liveProtocol(bench, { arms: own(wrong) }), 'wrong-model.yaml');
    await expect(
      runProtocol({ protocolPath: refused, runPath: join(folder, 'wrong-model'), leaseFolder }),
    ).rejects.toMatchObject({ code: 'model-changed' });
    const protocolPath = await bench.freeze(
      liveProtocol(bench, { arms: own({ path: model, sourceDigest }) }),
      'own-model.yaml',
    );
    const evaluation = await runProtocol({ protocolPath, runPath: join(folder, 'own-model'), leaseFolder });
    expect(evaluation).toMatchObject({ verdict: 'pass' });
  });

  test('show what recording costs: an arm with it off holds, and spends, nothing on it', async () => {
    const arms = [sessionArm('on'), sessionArm('off', { samples: false })];
    const gates: Gate[] = [
      { name: 'same', family: 'faithfulness', check: 'bit-equal', arms: ['on', 'off'] },
      { name: 'clean', family: 'resources', check: 'clean-end' },
    ];
    const protocolPath = await bench.freeze(liveProtocol(bench, { arms, gates }), 'recording.yaml');
    const runPath = join(bench.folder, 'recording');
    const evaluation = await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder });
    expect(evaluation).toMatchObject({ verdict: 'pass' });
    const { records } = await readRunFolder(runPath);
    const trials = records.filter((record) => record.kind === 'trial');
    for (const { slot, bytes, peaks, samples } of trials) {
      const on = slot.arm === 'on';
      expect(peaks.heldByCause?.recording).toBe(on ? '32768' : '0');
      expect(bytes.recording).toBe(on ? '32768' : '0');
      expect(samples.length > 0).toBe(on);
    }
    expect(await readFile(join(runPath, 'protocol.yaml'), 'utf8')).toContain('samples: false');
  });
});
