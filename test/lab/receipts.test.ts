import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { brotliCompressSync, brotliDecompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { canonicalJson } from '../../src/base/canonical-json.js';
import { sha256Hex } from '../../src/base/digest.js';
import { readPublicKeys } from '../../src/cli/key-files.js';
import { readArchiveFile } from '../../src/lab/archive-file.js';
import { type AuditedArchive, auditArchive } from '../../src/lab/audit.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import { receiptEntries } from '../../src/lab/receipts-folder.js';
import { receiptsTable, withReceipts } from '../../src/lab/receipts-table.js';
import { reexecuteTrials } from '../../src/lab/reexecute.js';

const folder = resolve('receipts');
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.zip.br'))
  .sort();
const archives = new Map<string, AuditedArchive>();
let home: string;
/** All that lies in the folder, as the tables show it. */
let shown: ReturnType<typeof receiptEntries> | undefined;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'waybill-receipts-'));
  process.env.HF_HOME = home;
  for (const file of files) {
    const keys = await readPublicKeys([join(folder, file.replace('.zip.br', '.pub.pem'))]);
    const bytes = await readArchiveFile(join(folder, file));
    archives.set(file, await auditArchive(bytes, { name: file, keys }));
  }
});
afterAll(() => rm(home, { recursive: true, force: true }));

describe('archives in receipts/', () => {
  test('there are some', () => {
    expect(files).not.toEqual([]);
  });

  test.each(files)('%s holds, by its digest, its signature and its records', async (file) => {
    const { audit } = archives.get(file)!;
    expect(audit.broken).toBeNull();
    expect(audit.gates.every(({ equal }) => equal)).toBe(true);
    const name = file.replace(/\.br$/, '');
    const digest = sha256Hex(await readArchiveFile(join(folder, file)));
    expect(readFileSync(join(folder, `${name}.sha256`), 'utf8')).toBe(`${digest}  ${name}\n`);
  });

  test.each(files)('%s is of the protocol that is shipped', (file) => {
    const { protocol, digest } = archives.get(file)!.archive!.run.part.protocol;
    const path = resolve('protocols', `${protocol.name}.yaml`);
    expect(parseProtocol(readFileSync(path), path).digest).toBe(digest);
  });

  // Large models are not here; those trials are executed again on request
  test.each(files.filter((file) => file.endsWith('-small.zip.br')))(
    '%s has the logits that this machine gives',
    async (file) => {
      const { part } = archives.get(file)!.archive!.run;
      const name = part.protocol.protocol.model?.path.split('/').at(-1) ?? '';
      const found = await reexecuteTrials(part, { count: 2, model: resolve('models', name), prompts: null });
      expect(found).toMatchObject({ verdict: 'equal' });
      expect(found.trials).toHaveLength(2);
    },
  );

  test.each([
    ['README.md', 'receipts/'],
    ['receipts/README.md', ''],
  ])('are those of the table in %s', async (name, prefix) => {
    shown ??= receiptEntries(folder, 'protocols');
    const entries = await shown;
    const text = readFileSync(resolve(name), 'utf8');
    expect(withReceipts(text, entries, prefix)).toBe(text);
  });
});

test('the arms of an archive that is not there are refused', () => {
  const marks = '<!-- arms of none begin -->\n<!-- arms of none end -->\n';
  expect(() => withReceipts(marks, [], '')).toThrow(expect.objectContaining({ code: 'receipt-missing' }));
});

describe('the receipt of an archive that lies elsewhere', () => {
  const name = 'row-retention-small';
  let lone: string;
  const put = (file: string, bytes: string | Uint8Array) => writeFile(join(lone, file), bytes);
  beforeAll(async () => {
    lone = await mkdtemp(join(tmpdir(), 'waybill-lone-'));
    const receipt = archives.get(`${name}.zip.br`)!.members!.get('receipts/lab.intoto.jsonl')!;
    await put(`${name}.intoto.jsonl.br`, brotliCompressSync(receipt));
    await put(`${name}.pub.pem`, readFileSync(join(folder, `${name}.pub.pem`)));
  });
  afterAll(() => rm(lone, { recursive: true, force: true }));

  test('says in the table what the archive would', async () => {
    const file = `${name}.zip.br`;
    const [entry] = await receiptEntries(lone, 'protocols');
    const whole = receiptsTable([{ file, archive: archives.get(file)!.archive! }], '');
    expect(receiptsTable([entry!], '')).toBe(
      whole.replace(`[${name}](${file})`, `[${name}](${name}.intoto.jsonl.br), the receipt alone`),
    );
  });

  test('is refused where it was changed, was signed by another key, or is of another protocol', async () => {
    const text = brotliDecompressSync(readFileSync(join(lone, `${name}.intoto.jsonl.br`))).toString();
    const [first = '', second = ''] = text.split('\n');
    const envelope = JSON.parse(second) as { payload: string };
    const payload = Buffer.from(envelope.payload, 'base64').toString().replace('"inconclusive"', '"pass"');
    const forged = { ...envelope, payload: Buffer.from(payload).toString('base64') };
    const refused = expect.objectContaining({ code: 'receipt-broken', exitCode: 6 });
    await put(`${name}.intoto.jsonl.br`, brotliCompressSync(`${first}\n${canonicalJson(forged)}\n`));
    await expect(receiptEntries(lone, 'protocols')).rejects.toEqual(refused);
    await put(`${name}.intoto.jsonl.br`, brotliCompressSync(text));
    await expect(receiptEntries(lone, 'protocols')).resolves.toHaveLength(1);
    await put(`${name}.pub.pem`, readFileSync(join(folder, 'aa-small.pub.pem')));
    await expect(receiptEntries(lone, 'protocols')).rejects.toEqual(refused);
    await put(`${name}.pub.pem`, readFileSync(join(folder, `${name}.pub.pem`)));
    const other = join(lone, 'protocols');
    await mkdir(other);
    await writeFile(join(other, `${name}.yaml`), readFileSync('protocols/aa-small.yaml'));
    await expect(receiptEntries(lone, other)).rejects.toEqual(refused);
  });
});

describe('an archive in Brotli', () => {
  const [file = ''] = files;

  test('is read as what is in it, and a whole one is read as it is', async () => {
    const zip = brotliDecompressSync(readFileSync(join(folder, file)));
    await writeFile(join(home, 'plain.zip'), zip);
    expect(await readArchiveFile(join(home, 'plain.zip'))).toEqual(zip);
    expect(await readArchiveFile(join(folder, file))).toEqual(zip);
  });

  test('that does not open is refused', async () => {
    const path = join(home, 'cut.zip.br');
    await writeFile(path, brotliCompressSync(Buffer.alloc(1000, 7)).subarray(0, -2));
    await expect(readArchiveFile(path)).rejects.toMatchObject({ code: 'archive-malformed', exitCode: 6 });
  });
});
