import { readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sha256Hex } from '../../src/base/digest.js';
import { buildArchive, runMembers } from '../../src/lab/archive.js';
import { writeArchiveFile } from '../../src/lab/archive-file.js';
import { readPart } from '../../src/lab/archive-part.js';
import { auditArchive } from '../../src/lab/audit.js';
import { checkPart } from '../../src/lab/audit-part.js';
import { checkReferences } from '../../src/lab/audit-reference.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import type { TrialRecord } from '../../src/lab/record-format.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { runProtocol } from '../../src/lab/runner.js';
import { packedBytes, withTemporaryFolder } from './support/archive-sample.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { sampleProtocol, sessionArm, yamlBytes } from './support/sample-protocol.js';

let bench: Bench;
let archivePath: string;
let archiveBytes: Buffer;

const sources = (run: string) => ({ run, noise: null, attempts: [], attachments: [], privateKey: null });

beforeAll(async () => {
  bench = await openBench();
  const protocolPath = await bench.freeze(liveProtocol(bench), 'source.yaml');
  const runPath = join(bench.folder, 'source');
  await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder });
  archivePath = join(bench.folder, 'source.zip');
  await writeArchiveFile(archivePath, (await buildArchive(sources(runPath))).members);
  archiveBytes = await readFile(archivePath);
});
afterAll(() => bench.close());

/** One arm that is compared with the archive's "stream". */
function borrowing(changes: Partial<Protocol> = {}, sha256 = sha256Hex(archiveBytes)): Protocol {
  const file = relative(join(bench.folder, 'protocols'), archivePath);
  return liveProtocol(bench, {
    name: 'borrowing',
    arms: [sessionArm('packets', { policy: 'packets' })],
    reference: {
      when: 'first',
      arm: { kind: 'archive', name: 'archived', group: 'f16', archive: { file, sha256 }, arm: 'stream' },
    },
    schedule: { seed: 7, blocks: 2, order: 'balanced', warmUps: 0 },
    gates: [
      { name: 'same bits', family: 'faithfulness', check: 'bit-equal', arms: ['packets'] },
      { name: 'all trials', family: 'resources', check: 'complete' },
    ],
    ...changes,
  });
}

async function run(protocol: Protocol, name: string) {
  const protocolPath = await bench.freeze(protocol, `${name}.yaml`);
  const runPath = join(bench.folder, name);
  const evaluation = await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder });
  return { evaluation, runPath };
}

describe('a reference that an archive holds', () => {
  test('is compared with, copied into the run, and checked by an audit that has the archive', async () => {
    const { evaluation, runPath } = await run(borrowing(), 'borrowed');
    expect(evaluation).toMatchObject({ verdict: 'pass', violations: [] });
    expect(evaluation.gates[0]!.reason).toContain('positions are equal');
    const { records } = await readRunFolder(runPath);
    expect(records[0]).toMatchObject({
      kind: 'trial',
      slot: { phase: 'reference', arm: 'archived' },
      borrowed: { archiveSha256: sha256Hex(archiveBytes), slot: { arm: 'stream' } },
    });
    const bytes = await packedBytes((await buildArchive(sources(runPath))).members);
    const checkOf = async (references: readonly Uint8Array[]) => {
      const { audit } = await auditArchive(bytes, { name: 'b.zip', references });
      expect(audit.broken).toBeNull();
      return audit.checks.find(({ check }) => check === 'reference')?.verdict;
    };
    expect(await checkOf([])).toBe('unchecked');
    expect(await checkOf([archiveBytes])).toBe('holds');
  });

  test('with other logits ends the run at the first that differs', async () => {
    const single = sessionArm('packets', { policy: 'packets', kv: 'f32' });
    const { evaluation } = await run(borrowing({ arms: [single] }), 'differs');
    expect(evaluation).toMatchObject({ verdict: 'fail', status: 'different', exitCode: 1 });
  });

  test('that somebody changed on the way is noticed where the archive is at hand', async () => {
    const { runPath } = await run(borrowing(), 'forged');
    const members = await runMembers(runPath);
    const text = Buffer.from(members.get('records.jsonl')!).toString('utf8');
    // A forger who also mends the chain: one record alone is enough to see that the copy is none
    const [first = ''] = text.split('\n');
    const record = JSON.parse(first) as { times: { endedNs: string } };
    record.times.endedNs = String(BigInt(record.times.endedNs) + 1n);
    const { canonicalJson } = await import('../../src/base/canonical-json.js');
    const forged = Buffer.from(`${canonicalJson(record)}\n`);
    await withTemporaryFolder(async (folder) => {
      const { mkdir, writeFile } = await import('node:fs/promises');
      await mkdir(join(folder, 'records'));
      for (const name of ['protocol.yaml', 'manifest.json'])
        await writeFile(join(folder, name), members.get(name)!);
      await writeFile(join(folder, 'records', '000001.json'), forged);
      const bytes = await packedBytes((await buildArchive(sources(folder))).members);
      const { audit } = await auditArchive(bytes, { name: 'f.zip', references: [archiveBytes] });
      expect(audit.broken?.code).toBe('archive-reference-differs');
    });
  });

  test('of another arm, or of other prompts, is noticed as well', async () => {
    const { runPath } = await run(borrowing(), 'honest');
    const part = readPart((await buildArchive(sources(runPath))).members, '');
    const [copy, ...others] = part.records;
    if (copy?.kind !== 'trial') throw new Error('the first record is no trial');
    const withBorrowed = (changes: Partial<NonNullable<TrialRecord['borrowed']>>) => ({
      ...part,
      records: [{ ...copy, borrowed: { ...copy.borrowed!, ...changes } }, ...others],
    });
    const otherArm = withBorrowed({ slot: { ...copy.borrowed!.slot, arm: 'packets' } });
    expect(() => checkPart(otherArm)).toThrow('is a copy of a trial of "packets", want "stream"');
    const otherItem = withBorrowed({ slot: { ...copy.borrowed!.slot, item: 1 } });
    await expect(checkReferences([otherItem], [archiveBytes])).rejects.toMatchObject({
      code: 'archive-reference-differs',
      message: expect.stringContaining('its item 2 has other prompts'),
    });
    expect(await checkReferences([part], [archiveBytes])).toBe(1);
    const live = { ...part, records: [{ ...copy, borrowed: undefined }, ...others] } as never;
    expect(() => checkPart(live)).toThrow('is not from the archive');
  });

  test.each([
    ['of other bytes', {}, '0'.repeat(64), 'reference-changed'],
    [
      'of other prompts',
      {
        workload: {
          kind: 'known',
          items: [{ prompts: [{ promptIds: [2, 9] }] }],
          newTokens: 3,
          includeContent: false,
        },
      } as Partial<Protocol>,
      undefined,
      'reference-does-not-fit',
    ],
  ])('%s is refused before anything runs', async (name, changes, sha256, code) => {
    const protocol = borrowing(changes, sha256);
    await expect(run(protocol, `refused-${name.replaceAll(' ', '-')}`)).rejects.toMatchObject({ code });
  });

  test('enters no gate on time and none on tokens', () => {
    const reference = borrowing().reference!;
    const refuse = (changes: Partial<Protocol>): string => {
      try {
        parseProtocol(yamlBytes(sampleProtocol({ reference, ...changes })), 'p.yaml');
      } catch (error) {
        return (error as Error).message;
      }
      return 'accepted';
    };
    const latency = {
      name: 'soon',
      family: 'useful-latency',
      check: 'at-most',
      arm: 'archived',
      metric: 'episode-ns',
      statistic: 'each',
      bound: '1',
    } as const;
    expect(refuse({ gates: [latency] })).toContain('"archived" is not one of stream, packets');
    const tokens = { name: 't', family: 'faithfulness', check: 'tokens-equal', arms: ['packets'] } as const;
    expect(refuse({ gates: [{ ...tokens, arms: ['packets'] }] })).toContain('a salt of its own');
    expect(refuse({ reference: { ...reference, when: 'last' } })).toContain('want "first"');
  });
});
