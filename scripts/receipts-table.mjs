// Writes the tables of README.md and receipts/README.md anew from the archives of receipts/, each audited first. Needs a
// build. With --check it changes nothing, and its exit code says whether they are current.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { readArchiveFile } from '../dist/lab/archive-file.js';
import { auditArchive } from '../dist/lab/audit.js';
import { withReceipts } from '../dist/lab/receipts-table.js';

const root = new URL('../', import.meta.url);
const check = process.argv.includes('--check');
const entries = [];
for (const file of readdirSync(new URL('receipts/', root))
  .filter((name) => name.endsWith('.zip.br'))
  .sort()) {
  const bytes = await readArchiveFile(new URL(`receipts/${file}`, root).pathname);
  const { audit, archive } = await auditArchive(bytes, { name: file });
  if (audit.broken !== null) throw new Error(`${file}: ${audit.broken.problem}`);
  entries.push({ file, archive });
}
for (const [name, folder] of [
  ['README.md', 'receipts/'],
  ['receipts/README.md', ''],
]) {
  const path = new URL(name, root);
  const text = readFileSync(path, 'utf8');
  const current = withReceipts(text, entries, folder);
  if (current === text) continue;
  if (check) {
    console.error(`${name} does not show what receipts/ holds: run node scripts/receipts-table.mjs`);
    process.exitCode = 1;
  } else writeFileSync(path, current);
}
