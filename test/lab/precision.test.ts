import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { canonicalJson } from '../../src/base/canonical-json.js';
import { openOrPrepare } from '../../src/checkpoint/open-or-prepare.js';
import { makeCheckpoint } from '../../src/checkpoint/synthetic.js';
import { buildArchive } from '../../src/lab/archive.js';
import { readPart } from '../../src/lab/archive-part.js';
import { auditArchive } from '../../src/lab/audit.js';
import { checkPart } from '../../src/lab/audit-part.js';
import { evaluateRun } from '../../src/lab/evaluation.js';
import type { Gate } from '../../src/lab/gate-schema.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import type { TrialRecord } from '../../src/lab/record-format.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { runProtocol } from '../../src/lab/runner.js';
import { packedBytes } from './support/archive-sample.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { sampleProtocol, sessionArm, yamlBytes } from './support/sample-protocol.js';
import { chained, wholeRun } from './support/sample-run.js';

const rowText = (...values: number[]): string =>
  Buffer.from(Float32Array.from(values).buffer).toString('base64');
const gate = (check: 'token-parity' | 'relative-l2-at-most', bound: string): Gate => ({
  name: check,
  family: 'faithfulness',
  check,
  arm: 'half',
  against: 'single',
  bound,
});
const arms = [
  sessionArm('single', { kv: 'f32', group: 'f32', keepLogits: true }),
  sessionArm('half', { keepLogits: true }),
];

/** Verdict and reason of a gate where the arms kept these rows in each of their two requests. */
function judged(found: Gate, single: readonly string[], half: readonly string[]) {
  const protocol = sampleProtocol({ arms, gates: [found] });
  const { manifest, records } = wholeRun(
    protocol,
    () => 1000n,
    (trial) => {
      const logits = [...(trial.slot.arm === 'half' ? half : single)];
      return { ...trial, requests: trial.requests.map((request) => ({ ...request, logits })) };
    },
  );
  const [result] = evaluateRun(protocol, manifest, records).gates;
  return { verdict: result!.verdict, reason: result!.reason };
}

describe('gates across precisions', () => {
  const base = [rowText(1, 0, 0), rowText(0, 2, 0), rowText(0, 0, 4)];

  test('tokens are compared position by position', () => {
    expect(judged(gate('token-parity', '1.0'), base, base)).toMatchObject({ verdict: 'pass' });
    const odd = [base[0]!, rowText(3, 2, 0), base[2]!];
    expect(judged(gate('token-parity', '0.66'), base, odd)).toEqual({
      verdict: 'pass',
      reason: '4 of 6 tokens are those of "single", a share of at least 0.66',
    });
    expect(judged(gate('token-parity', '0.67'), base, odd).verdict).toBe('fail');
  });

  test('logits are compared up to the first token that differs, and not behind it', () => {
    const near = [rowText(1, 0.5, 0), base[1]!, base[2]!];
    expect(judged(gate('relative-l2-at-most', '0.5'), base, near)).toEqual({
      verdict: 'pass',
      reason: '0.5 at the worst of 6 aligned positions, <= 0.5',
    });
    expect(judged(gate('relative-l2-at-most', '0.49'), base, near).verdict).toBe('fail');
    const apart = [base[0]!, rowText(2, 1, 0), rowText(100, 0, 0)];
    expect(judged(gate('relative-l2-at-most', '2.0'), base, apart).reason).toContain(
      'of 4 aligned positions',
    );
  });

  test('rows that are not finite, or of another length, pass nothing', () => {
    expect(
      judged(gate('relative-l2-at-most', '9.0'), base, [rowText(1, Number.NaN, 0), base[1]!, base[2]!])
        .verdict,
    ).toBe('fail');
    expect(
      judged(gate('relative-l2-at-most', '9.0'), base, [rowText(1, 0), base[1]!, base[2]!]).verdict,
    ).toBe('fail');
  });

  test('without logits are unmeasured, and refused where no arm keeps them', () => {
    const protocol = sampleProtocol({ arms, gates: [gate('token-parity', '1.0')] });
    const { manifest, records } = wholeRun(protocol, () => 1000n);
    expect(evaluateRun(protocol, manifest, records).gates[0]).toMatchObject({ verdict: 'unmeasured' });
    const without = [sessionArm('single', { kv: 'f32', group: 'f32' }), sessionArm('half')];
    expect(() =>
      parseProtocol(yamlBytes(sampleProtocol({ arms: without, gates: [gate('token-parity', '1.0')] })), 'p'),
    ).toThrow('want "keepLogits: true"');
  });
});

describe('logits that a run keeps', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await openBench();
  });
  afterAll(() => bench.close());

  test('are those of its digests, once an item and arm, and an audit compares them', async () => {
    const gates = [gate('token-parity', '1.0'), gate('relative-l2-at-most', '0.01')];
    const schedule = { seed: 7, blocks: 2, order: 'balanced', warmUps: 1 } as const;
    const protocolPath = await bench.freeze(liveProtocol(bench, { arms, gates, schedule }));
    const runPath = join(bench.folder, 'kept');
    const evaluation = await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder });
    expect(evaluation.gates.map(({ verdict }) => verdict)).toEqual(['pass', 'pass']);
    const run = await readRunFolder(runPath);
    const trials = run.records.filter((record): record is TrialRecord => record.kind === 'trial');
    const keeping = trials.filter(({ requests }) => requests.some(({ logits }) => logits !== undefined));
    expect(keeping.map(({ slot }) => [slot.phase, slot.block])).toEqual([
      ['measured', 0],
      ['measured', 0],
    ]);
    const { members } = await buildArchive({
      run: runPath,
      noise: null,
      attempts: [],
      attachments: [],
      privateKey: null,
    });
    const { audit } = await auditArchive(await packedBytes(members), { name: 'kept.zip' });
    expect(audit).toMatchObject({ holds: true, verdict: 'pass' });
    const part = readPart(members, '');
    const forged = part.records.map((record) => {
      if (record.kind !== 'trial' || record.sequence !== keeping[0]!.sequence) return record;
      const [first, ...others] = record.requests;
      const logits = first!.logits!.map((row, place) => (place === 1 ? first!.logits![0]! : row));
      return { ...record, requests: [{ ...first!, logits }, ...others] };
    });
    expect(canonicalJson(forged)).not.toBe(canonicalJson(part.records));
    expect(() => checkPart({ ...part, records: chained(part.manifest, forged) })).toThrow(
      'not those of digest 2',
    );
  });

  test('are not kept in an A/A run, whose arms all run the first one, with its own model', async () => {
    const other = join(bench.folder, 'another-model');
    const shape = { layers: 1, hidden: 64, ffn: 128, heads: 1, vocabulary: 600, positions: 64 };
    await makeCheckpoint({ directory: other, shape, active: 0.1, seed: 3, type: 'f32' });
    const { prepared } = await openOrPrepare(other, {});
    const own = { path: other, sourceDigest: prepared.sourceDigest };
    await prepared.close();
    const mixed = [{ ...arms[0]!, model: own }, arms[1]!];
    const protocolPath = await bench.freeze(
      liveProtocol(bench, { arms: mixed, gates: [gate('token-parity', '0.0')] }),
    );
    const [runPath, noisePath] = ['mixed', 'mixed-aa'].map((name) => join(bench.folder, name));
    const { leaseFolder } = bench;
    await runProtocol({ protocolPath, runPath: runPath!, leaseFolder });
    await runProtocol({ protocolPath, runPath: noisePath!, leaseFolder, variant: 'aa' });
    const noise = await readRunFolder(noisePath!);
    const kept = noise.records.filter(
      (record) => record.kind === 'trial' && record.requests.some(({ logits }) => logits !== undefined),
    );
    expect(kept).toEqual([]);
    const sources = { run: runPath!, noise: noisePath!, attempts: [], attachments: [], privateKey: null };
    const { members } = await buildArchive(sources);
    const part = readPart(members, 'aa/');
    // The run is told from one whose arms each had their own model
    const measured = { ...part.manifest, variant: 'measured' as const };
    expect(() => checkPart({ ...part, manifest: measured })).toThrow('arm "half" have digest');
  });
});
