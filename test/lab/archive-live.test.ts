import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildArchive } from '../../src/lab/archive.js';
import { diffArchives } from '../../src/lab/archive-diff.js';
import { restoreRun } from '../../src/lab/archive-restore.js';
import { type AuditedArchive, auditArchive } from '../../src/lab/audit.js';
import { type JudgedArchive, judgePart } from '../../src/lab/lab-receipt.js';
import type { RunRecord } from '../../src/lab/record-format.js';
import { reexecuteTrials } from '../../src/lab/reexecute.js';
import { runProtocol } from '../../src/lab/runner.js';
import { saltedPromptDigest } from '../../src/lab/workload.js';
import { packedBytes } from './support/archive-sample.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';

let bench: Bench;
let first: AuditedArchive;
let runPath: string;
beforeAll(async () => {
  bench = await openBench();
  const protocolPath = await bench.freeze(liveProtocol(bench));
  runPath = join(bench.folder, 'first');
  await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder });
  first = await audited(runPath);
});
afterAll(() => bench.close());

async function audited(run: string): Promise<AuditedArchive> {
  const sources = { run, noise: null, attempts: [], attachments: [], privateKey: null };
  const { members } = await buildArchive(sources);
  const found = await auditArchive(await packedBytes(members), { name: 'live.zip' });
  expect(found.audit.broken).toBeNull();
  return found;
}

/** The archive with other logits in one record, as if a device had given them. */
function withOtherLogits(archive: JudgedArchive): JudgedArchive['run']['part'] {
  const { part } = archive.run;
  const records = part.records.map((record): RunRecord => {
    if (record.kind !== 'trial') return record;
    const requests = record.requests.map((request, index) =>
      index === 1
        ? { ...request, logitsDigests: [...request.logitsDigests.slice(0, 2), 'f'.repeat(64)] }
        : request,
    );
    return { ...record, requests };
  });
  return { ...part, records };
}

describe('an archive of a run', () => {
  test('passes its audit', () => {
    expect(first.audit).toMatchObject({ holds: true, verdict: 'pass', exitCode: 0 });
  });

  test('is executed again on the CPU, to the last bit', async () => {
    const part = first.archive!.run.part;
    const found = await reexecuteTrials(part, { count: 3, model: bench.model, prompts: null });
    expect(found).toMatchObject({
      verdict: 'equal',
      reason: '3 of 6 trials, 18 rows of logits, equal to the last bit',
    });
    const again = await reexecuteTrials(part, { count: 3, model: bench.model, prompts: null });
    expect(again).toEqual(found);
    const all = await reexecuteTrials(part, { count: 100, model: bench.model, prompts: null });
    expect(all.trials).toHaveLength(6);
    const inside = { count: 3, model: bench.model, prompts: null, budgetBytes: 5_000_000 };
    expect(await reexecuteTrials(part, inside)).toEqual(found);
    await expect(reexecuteTrials(part, { ...inside, budgetBytes: 1000 })).rejects.toMatchObject({
      exitCode: 3,
    });
  });

  test('names the record whose logits this CPU does not give', async () => {
    const part = withOtherLogits(first.archive!);
    const found = await reexecuteTrials(part, { count: 1, model: bench.model, prompts: null });
    expect(found.verdict).toBe('different');
    expect(found.trials[0]).toMatchObject({ equal: false, positions: 5 });
    expect(found.reason).toContain('after 5 equal rows');
  });

  test('is unmeasured where the model is not at hand, or another one', async () => {
    const part = first.archive!.run.part;
    expect(await reexecuteTrials(part, { count: 1, model: null, prompts: null })).toMatchObject({
      verdict: 'unmeasured',
    });
    const protocol = { ...part.protocol.protocol, model: { path: 'x', sourceDigest: 'a'.repeat(64) } };
    const other = { ...part, protocol: { ...part.protocol, protocol } };
    const found = await reexecuteTrials(other, { count: 1, model: bench.model, prompts: null });
    expect([found.verdict, found.reason]).toEqual([
      'unmeasured',
      expect.stringContaining('the protocol names'),
    ]);
  });

  test('keeps prompts of a file out, and matches them by salted digest', async () => {
    const prompts = join(bench.folder, 'protocols', 'prompts.jsonl');
    await writeFile(prompts, '{"prompts":[{"promptIds":[7001,7002,7003]}]}\n');
    const saltedSha256 = await saltedPromptDigest(prompts);
    const workload = {
      kind: 'fresh',
      items: { file: 'prompts.jsonl', saltedSha256 },
      newTokens: 2,
      includeContent: false,
    } as const;
    const protocolPath = await bench.freeze(liveProtocol(bench, { workload }), 'private.yaml');
    const run = join(bench.folder, 'private');
    await runProtocol({ protocolPath, runPath: run, leaseFolder: bench.leaseFolder });
    const { archive, members } = await audited(run);
    for (const [name, bytes] of members!) expect(Buffer.from(bytes).includes('7001,7002'), name).toBe(false);
    const { part } = archive!.run;
    const request = { count: 2, model: bench.model };
    expect(await reexecuteTrials(part, { ...request, prompts: null })).toMatchObject({
      verdict: 'unmeasured',
    });
    expect(await reexecuteTrials(part, { ...request, prompts })).toMatchObject({ verdict: 'equal' });
    await writeFile(prompts, '{"prompts":[{"promptIds":[7001,7002,7004]}]}\n');
    expect(await reexecuteTrials(part, { ...request, prompts })).toMatchObject({ verdict: 'unmeasured' });
  });

  test('is compared with another run of its protocol, without a statistic over both', async () => {
    const protocolPath = join(bench.folder, 'protocols', 'protocol.yaml');
    const run = join(bench.folder, 'second');
    await runProtocol({ protocolPath, runPath: run, leaseFolder: bench.leaseFolder });
    const second = await audited(run);
    const diff = diffArchives(first.archive!, second.archive!);
    expect(diff).toMatchObject({ sameBits: true, sameVerdicts: true });
    expect(diff.bits.map(({ arm, verdict, positions }) => [arm, verdict, positions])).toEqual([
      ['stream', 'equal', 6],
      ['packets', 'equal', 6],
    ]);
    const equalities = diff.metrics.map(({ metric, equal }) => [metric, equal]);
    expect(equalities).toEqual([
      ['episode-ns', null],
      ['episode-ns', null],
      ['moved-bytes', true],
      ['moved-bytes', true],
    ]);
    const part = withOtherLogits(second.archive!);
    const other = { ...second.archive!, run: judgePart(part) };
    const different = diffArchives(first.archive!, other);
    expect([different.sameBits, different.bits[0]?.verdict]).toEqual([false, 'different']);
    const protocol = { ...part.protocol, digest: 'b'.repeat(64) };
    const stranger = { ...other, run: { ...other.run, part: { ...part, protocol } } };
    expect(() => diffArchives(first.archive!, stranger)).toThrow('Cannot compare the archives');
  });

  test('is restored as the folder that it was made from', async () => {
    const folder = join(bench.folder, 'restored');
    expect(await restoreRun(first.members!, folder)).toBe(9);
    for (const name of [
      'protocol.yaml',
      'manifest.json',
      ...(await readdir(join(runPath, 'records'))).map((file) => `records/${file}`),
    ]) {
      expect(await readFile(join(folder, name)), name).toEqual(await readFile(join(runPath, name)));
    }
    expect(await packedBytes((await audited(folder)).members!)).toEqual(await packedBytes(first.members!));
    await expect(restoreRun(first.members!, folder)).rejects.toThrow('is not empty');
    expect((await readdir(bench.folder)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  });
});
