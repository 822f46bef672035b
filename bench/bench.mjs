// All benchmarks, one after the other: `npm run bench`, or `npm run bench -- kernels` for those named. Flags behind the
// names go to each of them (`--json`, `--threads N`). Close other programs first; quote ratios, not single times.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const names = ['kernels', 'wasm-kernels', 'acquire', 'planner', 'policies'];
const given = process.argv.slice(2);
const firstFlag = given.findIndex((word) => word.startsWith('-'));
const chosen = firstFlag < 0 ? given : given.slice(0, firstFlag);
const flags = firstFlag < 0 ? [] : given.slice(firstFlag);
const unknown = chosen.filter((name) => !names.includes(name));
if (unknown.length > 0) {
  process.stderr.write(`Cannot run benchmark "${unknown[0]}": want ${names.join(', ')}\n`);
  process.exit(2);
}
for (const name of chosen.length > 0 ? chosen : names) {
  process.stderr.write(`\n${name}\n`);
  const script = fileURLToPath(new URL(`./${name}.mjs`, import.meta.url));
  const { status } = spawnSync(process.execPath, [script, ...flags], { stdio: 'inherit' });
  if (status !== 0) process.exitCode = status ?? 4;
}
