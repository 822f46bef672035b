import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, test } from 'vitest';
import { canonicalJson } from '../../src/base/canonical-json.js';
import { sha256Hex } from '../../src/base/digest.js';
import { type ArchiveSources, buildArchive } from '../../src/lab/archive.js';
import type { Members } from '../../src/lab/archive-container.js';
import { writeArchiveFile } from '../../src/lab/archive-file.js';
import { sumsOf } from '../../src/lab/archive-layout.js';
import { readPart } from '../../src/lab/archive-part.js';
import { type Audit, auditArchive, auditJson } from '../../src/lab/audit.js';
import { accountingOf } from '../../src/lab/audit-compare.js';
import { judgePart, labStatements } from '../../src/lab/lab-receipt.js';
import { roCrate } from '../../src/lab/ro-crate.js';
import { generateKeyPair, parsePrivateKey, parsePublicKey } from '../../src/receipt/dsse.js';
import { receiptLine } from '../../src/receipt/seal.js';
import { statementSchema } from '../../src/receipt/statement.js';
import {
  archiveProtocol,
  packedBytes,
  packetsWin,
  type SampleRun,
  withTemporaryFolder,
  writeSampleRun,
} from './support/archive-sample.js';
import { sampleEnd } from './support/sample-run.js';

const keys = generateKeyPair();
const privateKey = parsePrivateKey(keys.privatePem, 'key');
const trusted = [{ name: 'key', key: parsePublicKey(keys.publicPem, 'key') }];

async function archiveOf(run: SampleRun = {}, changes: Partial<ArchiveSources> = {}): Promise<Members> {
  return withTemporaryFolder(async (folder) => {
    await writeSampleRun(join(folder, 'run'), run);
    const sources = {
      run: join(folder, 'run'),
      noise: null,
      attempts: [],
      attachments: [],
      privateKey: null,
    };
    return (await buildArchive({ ...sources, ...changes })).members;
  });
}

async function audit(members: Members, options: { keys?: typeof trusted } = {}): Promise<Audit> {
  return (await auditArchive(await packedBytes(members), { name: 'sample.zip', ...options })).audit;
}

const small = archiveProtocol({
  schedule: { seed: 7, blocks: 2, order: 'balanced', warmUps: 0 },
  gates: [{ name: 'same bits', family: 'faithfulness', check: 'bit-equal', arms: ['stream', 'packets'] }],
});

/** What a clever forger does: changes a member, then makes every list of digests fit it. */
function forged(members: Members, name: string, change: (text: string) => string): Members {
  const copy = new Map(members);
  const before = Buffer.from(copy.get(name)!).toString('utf8');
  const after = change(before);
  expect(after).not.toBe(before);
  copy.set(name, Buffer.from(after));
  return resealed(copy);
}

function resealed(copy: Map<string, Uint8Array>): Members {
  const part = judgePart(readPart(copy, ''));
  copy.set('ro-crate-metadata.json', Buffer.from(roCrate(copy, { run: part, noise: null, attempts: [] })));
  copy.set('SHA256SUMS', Buffer.from(sumsOf(copy)));
  return copy;
}

describe('audit', () => {
  let whole: Members;
  beforeAll(async () => {
    whole = await archiveOf({}, { privateKey });
  });

  test('recomputes every verdict of an honest archive', async () => {
    const found = await audit(whole, { keys: trusted });
    expect(found.broken).toBeNull();
    expect(found.checks.every(({ verdict }) => verdict === 'holds')).toBe(true);
    expect(
      found.gates.map(({ name, recomputed, receipt, equal }) => [name, recomputed, receipt, equal]),
    ).toEqual([
      ['same bits', 'pass', 'pass', true],
      ['fewer bytes', 'pass', 'pass', true],
      ['not slower', 'pass', 'pass', true],
    ]);
    expect(found).toMatchObject({ holds: true, verdict: 'pass', exitCode: 0 });
  });

  test('says the same twice, to the byte', async () => {
    const bytes = await packedBytes(whole);
    const [first, second] = [
      await auditArchive(bytes, { name: 'a', keys: trusted }),
      await auditArchive(Buffer.from(bytes), { name: 'a', keys: trusted }),
    ];
    expect(auditJson(first.audit)).toBe(auditJson(second.audit));
  });

  test('says that a signature was not checked where no key is given', async () => {
    const found = await audit(whole);
    expect(found.checks.filter(({ check }) => check === 'signature').map(({ verdict }) => verdict)).toEqual([
      'unchecked',
      'unchecked',
    ]);
    expect(found.exitCode).toBe(0);
  });

  test('refuses an unsigned receipt, or one by somebody else, where a key is given', async () => {
    const stranger = [{ name: 'other', key: parsePublicKey(generateKeyPair().publicPem, 'other') }];
    expect(await audit(whole, { keys: stranger })).toMatchObject({
      exitCode: 6,
      broken: { code: 'receipt-signature' },
    });
    const unsigned = await archiveOf();
    expect(await audit(unsigned, { keys: trusted })).toMatchObject({
      exitCode: 6,
      broken: { code: 'receipt-signature' },
    });
  });

  test('notices any changed byte of any member, and of the zip between them', async () => {
    const bytes = await packedBytes(await archiveOf({ protocol: small }, { privateKey }));
    expect(bytes.length).toBeGreaterThan(10_000);
    for (let at = 0; at < bytes.length; at++) {
      const changed = Buffer.from(bytes);
      changed[at]! ^= 1 << (at % 8);
      const found = await auditArchive(changed, { name: 'x' });
      expect(found.audit.exitCode, `byte ${at}`).toBe(6);
      expect(found.audit.broken?.problem ?? '').toMatch(/[^.]$/);
    }
  });

  test('notices any changed byte of a member even where the zip around it was made to fit', async () => {
    const members = await archiveOf({ protocol: small });
    for (const [name, data] of members) {
      const stride = data.length < 700 ? 1 : Math.ceil(data.length / 200);
      for (let at = 0; at < data.length; at += stride) {
        const bytes = Buffer.from(data);
        bytes[at]! ^= 1 << (at % 8);
        const copy = new Map(members).set(name, bytes);
        if (name !== 'SHA256SUMS') copy.set('SHA256SUMS', Buffer.from(sumsOf(copy)));
        const found = await audit(copy);
        expect(found.exitCode, `byte ${at} of ${name}`).toBe(6);
      }
    }
  });

  test.each([
    ['a verdict', '"verdict":"pass"', '"verdict":"fail"', 'receipt-gate-differs'],
    ['a figure', '"whole"', '"while"', 'receipt-differs'],
    ['an interval', '"low":"0.', '"low":"0.1', 'receipt-differs'],
    ['an environment', '"node":"v20.20.0"', '"node":"v20.20.1"', 'receipt-differs'],
    ['a subject', '"name":"archive/manifest.json"', '"name":"archive/manifest.jsom"', 'receipt-differs'],
  ])('refuses a receipt whose %s was changed and everything else made to fit', async (_, from, to, code) => {
    const gates = [
      ...archiveProtocol().gates,
      { name: 'whole', family: 'resources', check: 'complete' } as const,
    ];
    const members = await archiveOf({ protocol: archiveProtocol({ gates }) });
    const copy = forged(members, 'receipts/lab.intoto.jsonl', (text) => {
      const [verdict, accounting] = text
        .trimEnd()
        .split('\n')
        .map((line) => statementSchema.parse(JSON.parse(line)));
      const { seal: _seal, ...open } = accounting!.predicate;
      const changed = JSON.parse(
        canonicalJson({ ...accounting, predicate: open }).replace(from, to),
      ) as object & {
        predicate: object;
      };
      const seal = sha256Hex(Buffer.from(canonicalJson(changed)));
      const lines = [verdict, { ...changed, predicate: { ...changed.predicate, seal } }];
      return lines.map((line) => `${canonicalJson(line)}\n`).join('');
    });
    expect(await audit(copy)).toMatchObject({ exitCode: 6, broken: { code } });
  });

  test('refuses records whose times were changed by somebody who cannot sign', async () => {
    const faster = await archiveOf({
      trial: (slot, index) =>
        packetsWin(slot.arm === 'packets' ? slot : { ...slot, arm: 'stream' }, index + 1),
    });
    const copy = new Map(faster).set('receipts/lab.intoto.jsonl', whole.get('receipts/lab.intoto.jsonl')!);
    expect(await audit(resealed(copy), { keys: trusted })).toMatchObject({ holds: false, exitCode: 6 });
  });

  test('refuses a run that leaves out a trial it did not like', async () => {
    const members = await archiveOf();
    const copy = new Map(members);
    const lines = Buffer.from(copy.get('records.jsonl')!).toString().split('\n');
    lines.splice(4, 1);
    copy.set('records.jsonl', Buffer.from(lines.join('\n')));
    copy.set('SHA256SUMS', Buffer.from(sumsOf(copy)));
    expect(await audit(copy)).toMatchObject({ exitCode: 6, broken: { code: 'broken-chain' } });
  });

  test.each([
    ['a member that nothing explains', 'extra.txt', 'archive-member-unknown'],
    ['a salt', 'salt', 'archive-member-unknown'],
    ['an attempt with a gap', 'attempts/2/manifest.json', 'archive-member-missing'],
    ['a folder of attachments', 'attachments/a/b', 'archive-member-unknown'],
  ])('refuses %s', async (_, name, code) => {
    const copy = new Map(whole).set(name, Buffer.from('x'));
    copy.set('SHA256SUMS', Buffer.from(sumsOf(copy)));
    expect(await audit(copy)).toMatchObject({ exitCode: 6, broken: { code } });
  });

  test.each(['protocol.yaml', 'manifest.json', 'records.jsonl', 'receipts/lab.intoto.jsonl', 'SHA256SUMS'])(
    'refuses an archive without %s',
    async (name) => {
      const copy = new Map(whole);
      copy.delete(name);
      expect(await audit(copy)).toMatchObject({ exitCode: 6, broken: { code: 'archive-member-missing' } });
    },
  );

  test('gives the exit codes of the verdicts', async () => {
    const slow = (slot: Parameters<typeof packetsWin>[0], index: number) => {
      const other = packetsWin({ ...slot, arm: slot.arm === 'packets' ? 'stream' : 'packets' }, index);
      return { ...other, slot, arm: packetsWin(slot, index).arm };
    };
    const swapped = await archiveOf({ trial: slow });
    expect(await audit(swapped)).toMatchObject({ holds: true, verdict: 'fail', exitCode: 1 });
    const killed = await archiveOf({ trials: 7, end: null });
    expect((await audit(killed)).gates.map(({ recomputed }) => recomputed)).not.toContain('pass');
    const failed = await archiveOf({
      trials: 7,
      end: sampleEnd({ status: 'failed', error: { code: 'x', message: 'y' } }),
    });
    expect(await audit(failed)).toMatchObject({ holds: true, verdict: 'unmeasured', exitCode: 4 });
  });

  test('never says PASSED of a run that was broken off', async () => {
    for (const trials of [0, 1, 5, 21]) {
      const members = await archiveOf({ trials, end: null });
      const [first] = Buffer.from(members.get('receipts/lab.intoto.jsonl')!).toString().split('\n');
      expect(JSON.parse(first!)).toMatchObject({ predicate: { result: 'FAILED' } });
      expect((await audit(members)).holds).toBe(true);
    }
  });

  test('keeps failed attempts, the noise floor and attachments, and checks them', async () => {
    await withTemporaryFolder(async (folder) => {
      const [run, noise, failed, broken] = ['run', 'aa', 'failed', 'broken'].map((name) =>
        join(folder, name),
      );
      await writeSampleRun(run!);
      await writeSampleRun(noise!, {
        variant: 'aa',
        trial: (slot, index) => ({ ...packetsWin({ ...slot, arm: 'stream' }, index), slot }),
      });
      await writeSampleRun(failed!, { trials: 5, end: null, startedAt: '2026-01-01T05:00:00.000+00:00' });
      await writeSampleRun(broken!, { trials: 9, end: null, startedAt: '2026-01-01T06:00:00.000+00:00' });
      await mkdir(join(folder, 'given'));
      const junit = join(folder, 'given', 'junit.xml');
      await writeFile(junit, '<testsuites/>\n');
      const earlier = await buildArchive({
        run: broken!,
        noise: null,
        attempts: [failed!],
        attachments: [],
        privateKey: null,
      });
      const { path } = await writeArchiveFile(join(folder, 'earlier.zip'), earlier.members);
      const { members } = await buildArchive({
        run: run!,
        noise: noise!,
        attempts: [path],
        attachments: [junit],
        privateKey,
      });
      const found = await audit(members, { keys: trusted });
      expect(found.broken).toBeNull();
      const lines = Buffer.from(members.get('receipts/lab.intoto.jsonl')!).toString().trimEnd().split('\n');
      const statements = lines.map((line) =>
        statementSchema.parse(
          JSON.parse(Buffer.from((JSON.parse(line) as { payload: string }).payload, 'base64').toString()),
        ),
      );
      expect(statements[0]!.subject.map(({ name }) => name)).toContain('archive/attachments/junit.xml');
      const accounting = accountingOf(statements)!;
      expect(accounting.attempts.map(({ status, records }) => [status, records])).toEqual([
        ['killed', 5],
        ['killed', 9],
      ]);
      expect(accounting.noise?.floors[0]?.floor?.pairs).toBe(10);
      for (const name of ['aa/records.jsonl', 'attempts/1/records.jsonl', 'attachments/junit.xml']) {
        const copy = new Map(members).set(
          name,
          Buffer.from(`${Buffer.from(members.get(name)!).toString()} `),
        );
        copy.set('SHA256SUMS', Buffer.from(sumsOf(copy)));
        expect(await audit(copy), name).toMatchObject({ exitCode: 6 });
      }
      await expect(
        buildArchive({ run: run!, noise: run!, attempts: [], attachments: [], privateKey }),
      ).rejects.toThrow('is no A/A run');
    });
  });

  test('writes an archive that sha256sum checks, outside and inside', async () => {
    await withTemporaryFolder(async (folder) => {
      const written = await writeArchiveFile(join(folder, 'sample.zip'), whole);
      const run = promisify(execFile);
      expect((await run('sha256sum', ['-c', 'sample.zip.sha256'], { cwd: folder })).stdout).toContain('OK');
      expect(written.sha256).toBe(sha256Hex(await readFile(written.path)));
      for (const [name, data] of whole) {
        await mkdir(join(folder, 'out', name, '..'), { recursive: true });
        await writeFile(join(folder, 'out', name), data);
      }
      await run('sha256sum', ['-c', '--strict', 'SHA256SUMS'], { cwd: join(folder, 'out') });
    });
  });

  test('holds neither salt nor prompts that the protocol leaves out', () => {
    expect([...whole.keys()]).toEqual(expect.not.arrayContaining(['salt']));
    expect(Buffer.concat([...whole.values()]).includes('5a'.repeat(32))).toBe(false);
  });

  test('describes itself as an RO-Crate', () => {
    const crate = JSON.parse(Buffer.from(whole.get('ro-crate-metadata.json')!).toString()) as {
      '@graph': Record<string, unknown>[];
    };
    const entity = (id: string) => crate['@graph'].find((item) => item['@id'] === id);
    expect(entity('ro-crate-metadata.json')).toMatchObject({
      about: { '@id': './' },
      conformsTo: { '@id': 'https://w3id.org/ro/crate/1.1' },
    });
    const root = entity('./') as { hasPart: { '@id': string }[] };
    expect(root).toMatchObject({
      '@type': 'Dataset',
      name: expect.any(String),
      description: expect.any(String),
      datePublished: expect.any(String),
    });
    for (const { '@id': id } of root.hasPart) expect(entity(id), id).toMatchObject({ '@type': 'File' });
    expect(root.hasPart.map((part) => part['@id']).sort()).toEqual(
      [...whole.keys()].filter((name) => name !== 'SHA256SUMS' && name !== 'ro-crate-metadata.json').sort(),
    );
  });

  test('makes both statements from the members alone', () => {
    const part = judgePart(readPart(whole, ''));
    const again = labStatements(whole, { run: part, noise: null, attempts: [] });
    const lines = again.map((statement) => `${receiptLine(statement, privateKey)}\n`).join('');
    expect(Buffer.from(whole.get('receipts/lab.intoto.jsonl')!).toString()).toBe(lines);
  });
});
