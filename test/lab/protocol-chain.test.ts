import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildArchive, runMembers } from '../../src/lab/archive.js';
import type { Members } from '../../src/lab/archive-container.js';
import { sumsOf } from '../../src/lab/archive-layout.js';
import { restoreRun } from '../../src/lab/archive-restore.js';
import { type Audit, auditArchive } from '../../src/lab/audit.js';
import { freezeProtocol } from '../../src/lab/freeze.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { resumeRun, runProtocol } from '../../src/lab/runner.js';
import { packedBytes } from './support/archive-sample.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { yamlBytes } from './support/sample-protocol.js';

let bench: Bench;
let first: string;
let second: string;
let third: string;
const at = '2026-01-02T03:04:05+00:00';

const path = (name: string) => join(bench.folder, 'protocols', name);

/** Freezes a protocol that takes the place of another. */
async function supersede(earlierPath: string, changes: Partial<Protocol>, name: string): Promise<string> {
  const earlier = parseProtocol(await readFile(earlierPath), 'earlier.yaml');
  const draft = parseProtocol(yamlBytes(liveProtocol(bench, changes)), name);
  await writeFile(path(name), freezeProtocol(draft, at, { earlier, reason: 'one more token' }));
  return path(name);
}

let runs = 0;
async function run(protocolPath: string): Promise<string> {
  const runPath = join(bench.folder, `run-${++runs}`);
  await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder });
  return runPath;
}

const workload = (newTokens: number) => ({ ...liveProtocol(bench).workload, newTokens });
const sources = { noise: null, attempts: [], attachments: [], privateKey: null };
const auditOf = async (members: Members): Promise<Audit> =>
  (await auditArchive(await packedBytes(members), { name: 'chain.zip' })).audit;

beforeAll(async () => {
  bench = await openBench();
  first = await bench.freeze(liveProtocol(bench, { workload: workload(1) }), 'first.yaml');
  second = await supersede(first, { workload: workload(2) }, 'second.yaml');
  third = await supersede(second, { workload: workload(3) }, 'third.yaml');
});
afterAll(() => bench.close());

describe('the chain of protocols', () => {
  test('lies in the run, in its archive, and in what is restored from it', async () => {
    const runPath = await run(third);
    expect((await readdir(join(runPath, 'superseded'))).sort()).toEqual(['1.yaml', '2.yaml']);
    expect(await readFile(join(runPath, 'superseded', '2.yaml'))).toEqual(await readFile(first));
    const { superseded } = await readRunFolder(runPath);
    expect(superseded.map(({ protocol }) => protocol.workload.newTokens)).toEqual([2, 1]);
    const { members } = await buildArchive({ ...sources, run: runPath });
    expect(await auditOf(members)).toMatchObject({ holds: true, verdict: 'pass' });
    const folder = join(bench.folder, 'restored');
    await restoreRun(members, folder);
    expect((await readRunFolder(folder)).superseded).toHaveLength(2);
    expect(await runMembers(folder)).toEqual(await runMembers(runPath));
  });

  test('is whole or the audit says what is wrong', async () => {
    const { members } = await buildArchive({ ...sources, run: await run(third) });
    const changed = async (change: (copy: Map<string, Uint8Array>) => void): Promise<string | undefined> => {
      const copy = new Map(members);
      change(copy);
      copy.set('SHA256SUMS', Buffer.from(sumsOf(copy)));
      return (await auditOf(copy)).broken?.code;
    };
    const [nearest, farthest] = [members.get('superseded/1.yaml')!, members.get('superseded/2.yaml')!];
    expect(await changed((copy) => copy.delete('superseded/2.yaml'))).toBe('broken-protocol-chain');
    expect(await changed((copy) => copy.delete('superseded/1.yaml'))).toBe('archive-member-missing');
    expect(
      await changed((copy) => {
        copy.delete('superseded/1.yaml');
        copy.delete('superseded/2.yaml');
      }),
    ).toBe('broken-protocol-chain');
    expect(
      await changed((copy) => copy.set('superseded/1.yaml', farthest).set('superseded/2.yaml', nearest)),
    ).toBe('broken-protocol-chain');
    expect(await changed((copy) => copy.set('superseded/3.yaml', farthest))).toBe('broken-protocol-chain');
    const edited = Buffer.from(Buffer.from(nearest).toString('utf8').replace('seed: 7', 'seed: 8'));
    expect(await changed((copy) => copy.set('superseded/1.yaml', edited))).toBe('protocol-changed');
    expect(await changed((copy) => copy.set('superseded/x.yaml', edited))).toBe('archive-member-unknown');
  });

  test('takes in attempts at what was superseded, and no others', async () => {
    const attempt = await run(second);
    const runPath = await run(third);
    const { members } = await buildArchive({ ...sources, run: runPath, attempts: [attempt] });
    expect([...members.keys()].filter((name) => name.includes('superseded')).sort()).toEqual([
      'attempts/1/superseded/1.yaml',
      'superseded/1.yaml',
      'superseded/2.yaml',
    ]);
    expect(await auditOf(members)).toMatchObject({ holds: true });
    const stranger = await run(
      await bench.freeze(liveProtocol(bench, { workload: workload(5) }), 'stranger.yaml'),
    );
    const later = await run(third);
    await expect(buildArchive({ ...sources, run: later, attempts: [stranger] })).rejects.toMatchObject({
      code: 'archive-parts-differ',
      message: expect.stringContaining('does not supersede'),
    });
  });

  test('is that of the run when it is resumed, wherever the others are by then', async () => {
    const runPath = join(bench.folder, 'broken-off');
    const controller = new AbortController();
    const { leaseFolder } = bench;
    await runProtocol(
      { protocolPath: third, runPath, leaseFolder },
      { signal: controller.signal, onRecord: () => controller.abort() },
    );
    await rm(first);
    await rm(second);
    expect(await resumeRun({ runPath, leaseFolder })).toMatchObject({ verdict: 'pass', violations: [] });
    await expect(run(third)).rejects.toMatchObject({ code: 'superseded-protocol-missing' });
  });

  test('of programs: an archive of another version than the protocol allows is refused', async () => {
    const program = { atLeast: '0.1.0', below: '0.2.0' };
    const runPath = await run(await bench.freeze(liveProtocol(bench, { program }), 'ranged.yaml'));
    const { members } = await buildArchive({ ...sources, run: runPath });
    expect(await auditOf(members)).toMatchObject({ holds: true });
    const newer = { atLeast: '0.2.0', below: '1.0.0' };
    const refused = await bench.freeze(liveProtocol(bench, { program: newer }), 'newer.yaml');
    await expect(run(refused)).rejects.toMatchObject({ code: 'program-outside-range', exitCode: 3 });
    const { checkPart } = await import('../../src/lab/audit-part.js');
    const { readPart } = await import('../../src/lab/archive-part.js');
    const part = readPart(members, '');
    const manifest = {
      ...part.manifest,
      program: { ...part.manifest.program, name: 'program/waybill@0.2.0' },
    };
    expect(() => checkPart({ ...part, manifest })).toThrow('want at least 0.1.0 and below 0.2.0');
  });
});
