import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sha256Hex } from '../../src/base/digest.js';
import { type AuditedArchive, auditArchive } from '../../src/lab/audit.js';
import { type ReceiptEntry, receiptsTable } from '../../src/lab/receipts-table.js';
import { reexecuteTrials } from '../../src/lab/reexecute.js';

const folder = resolve('receipts');
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.zip'))
  .sort();
const archives = new Map<string, AuditedArchive>();
let home: string;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'waybill-receipts-'));
  process.env.HF_HOME = home;
  for (const file of files) {
    archives.set(file, await auditArchive(readFileSync(join(folder, file)), { name: file }));
  }
});
afterAll(() => rm(home, { recursive: true, force: true }));

describe('archives in receipts/', () => {
  test('there are some', () => {
    expect(files).not.toEqual([]);
  });

  test.each(files)('%s holds, by its digest and its records', (file) => {
    const { audit } = archives.get(file)!;
    expect(audit.broken).toBeNull();
    expect(audit.gates.every(({ equal }) => equal)).toBe(true);
    const digest = sha256Hex(readFileSync(join(folder, file)));
    expect(readFileSync(join(folder, `${file}.sha256`), 'utf8')).toBe(`${digest}  ${file}\n`);
  });

  test.each(files)('%s has the logits that this machine gives', async (file) => {
    const { part } = archives.get(file)!.archive!.run;
    const name = part.protocol.protocol.model?.path.split('/').at(-1) ?? '';
    const found = await reexecuteTrials(part, { count: 2, model: resolve('models', name), prompts: null });
    expect(found).toMatchObject({ verdict: 'equal' });
    expect(found.trials).toHaveLength(2);
  });

  test('are those of the table', () => {
    const entries = files.map((file): ReceiptEntry => ({ file, archive: archives.get(file)!.archive! }));
    const readme = readFileSync(join(folder, 'README.md'), 'utf8');
    expect(readme.split('<!-- table begins -->\n')[1]?.split('<!-- table ends -->')[0]).toBe(
      receiptsTable(entries),
    );
  });
});
