// Writes the tables of README.md and receipts/README.md anew from the archives of receipts/, each audited first, and from
// the receipts of archives that are too large to lie there, each verified. Needs a build. With --check it changes nothing,
// and its exit code says whether they are current.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { receiptEntries } from '../dist/lab/receipts-folder.js';
import { withReceipts } from '../dist/lab/receipts-table.js';

const root = new URL('../', import.meta.url);
const check = process.argv.includes('--check');
const folder = (name) => fileURLToPath(new URL(name, root));
const entries = await receiptEntries(folder('receipts'), folder('protocols'));
for (const [name, prefix] of [
  ['README.md', 'receipts/'],
  ['receipts/README.md', ''],
]) {
  const path = new URL(name, root);
  const text = readFileSync(path, 'utf8');
  const current = withReceipts(text, entries, prefix);
  if (current === text) continue;
  if (check) {
    console.error(`${name} does not show what receipts/ holds: run node scripts/receipts-table.mjs`);
    process.exitCode = 1;
  } else writeFileSync(path, current);
}
