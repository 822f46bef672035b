// The house is read in one direction: a folder imports only from folders above it. Checked on every import of src/.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const order = [
  'base',
  'checkpoint',
  'memory',
  'backend',
  'acquire',
  'model',
  'generate',
  'receipt',
  'serve',
  'tune',
  'lab',
  'cli',
];
// Rooms of a folder that must not see each other; a backend's own folder is entered through src/backend/open.ts alone.
const separate = { backend: ['oracle', 'cpu', 'cuda', 'null'] };
// The verifier imports nothing from the producer.
const forbidden = [
  {
    file: 'receipt/verify.ts',
    folders: ['checkpoint', 'memory', 'backend', 'acquire', 'model', 'generate'],
    files: ['receipt/seal.ts'],
  },
];
// What an audit reaches, directly or not: it trusts records alone and runs nothing.
const unreachable = [
  {
    file: 'lab/audit.ts',
    folders: ['model', 'generate', 'cli'],
    files:
      /^lab\/(archive|reexecut\S*|run|run-folder|runner\S*|resume\S*|lease\S*|\S+-driver|\S+-process)\.ts$/,
  },
];
const maxLines = 400;
const maxMedianLines = 150;

const root = join(dirname(fileURLToPath(import.meta.url)), '..', 'src');
const files = readdirSync(root, { recursive: true })
  .map((name) => name.split(sep).join('/'))
  .filter((name) => name.endsWith('.ts'));
const problems = [];
const lineCounts = [];
const imports = new Map();

for (const file of files) {
  const text = readFileSync(join(root, file), 'utf8');
  const lines = text.split('\n').length;
  lineCounts.push(lines);
  if (lines > maxLines) problems.push(`${file}: ${lines} lines, want at most ${maxLines}`);
  if (/(^|\/)utils?(\/|\.)/.test(file)) problems.push(`${file}: there is no drawer for odds and ends`);
  for (const [, specifier] of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
    const target = normalize(join(dirname(file), specifier))
      .split(sep)
      .join('/')
      .replace(/\.js$/, '.ts');
    checkImport(file, target);
    imports.set(file, [...(imports.get(file) ?? []), target]);
  }
}
for (const rule of unreachable) checkReach(rule);

function checkImport(file, target) {
  const [from, fromRoom] = file.split('/');
  const [to, toRoom] = target.split('/');
  if (!file.includes('/')) return; // index.ts and main-path.ts stand outside and see everything
  if (!target.includes('/'))
    problems.push(`${file} imports ${target}: a room does not look at the front door`);
  const [fromRank, toRank] = [order.indexOf(from), order.indexOf(to)];
  if (fromRank < 0) problems.push(`${file}: folder "${from}" has no place in the order`);
  else if (toRank > fromRank) problems.push(`${file} imports ${target}: ${to} comes after ${from}`);
  const rooms = separate[from];
  if (
    rooms !== undefined &&
    from === to &&
    rooms.includes(fromRoom) &&
    rooms.includes(toRoom) &&
    fromRoom !== toRoom
  ) {
    problems.push(`${file} imports ${target}: ${fromRoom} and ${toRoom} do not know each other`);
  }
  for (const rule of forbidden) {
    if (rule.file === file && (rule.folders.includes(to) || rule.files.includes(target))) {
      problems.push(`${file} imports ${target}: it must not see what it checks`);
    }
  }
}

function checkReach({ file, folders, files: names }) {
  const ways = new Map([[file, file]]);
  for (const [reached, way] of ways) {
    if (folders.includes(reached.split('/')[0]) || names.test(reached)) {
      problems.push(`${way}: ${file} must not reach it`);
    }
    for (const next of imports.get(reached) ?? []) {
      if (!ways.has(next)) ways.set(next, `${way} imports ${next}`);
    }
  }
}

lineCounts.sort((a, b) => a - b);
const median = lineCounts[lineCounts.length >> 1];
if (median >= maxMedianLines) problems.push(`median file: ${median} lines, want under ${maxMedianLines}`);
if (problems.length > 0) {
  process.stderr.write(`${problems.join('\n')}\n`);
  process.exitCode = 1;
} else {
  process.stdout.write(
    `layers: ${files.length} files in ${relative(process.cwd(), root) || 'src'}, median ${median} lines, one direction\n`,
  );
}
