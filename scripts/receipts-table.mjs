// Writes the table of receipts/README.md anew from the archives beside it, each audited first. Needs a build.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { auditArchive } from '../dist/lab/audit.js';
import { receiptsTable } from '../dist/lab/receipts-table.js';

const folder = new URL('../receipts/', import.meta.url);
const entries = [];
for (const file of readdirSync(folder)
  .filter((name) => name.endsWith('.zip'))
  .sort()) {
  const { audit, archive } = await auditArchive(readFileSync(new URL(file, folder)), { name: file });
  if (audit.broken !== null) throw new Error(`${file}: ${audit.broken.problem}`);
  entries.push({ file, archive });
}
const readme = new URL('README.md', folder);
const text = readFileSync(readme, 'utf8');
const [begin, end] = ['<!-- table begins -->\n', '<!-- table ends -->'];
const [before, after] = [text.split(begin)[0], text.split(end)[1]];
writeFileSync(readme, `${before}${begin}${receiptsTable(entries)}${end}${after}`);
