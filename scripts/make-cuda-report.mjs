// node scripts/make-cuda-report.mjs docs/reports/cuda-h200 [--memcheck TEXT] [--racecheck TEXT] RUN.json...
// Writes NAME.json and NAME.md from what `npm run test:cuda -- --report RUN.json` left. Needs build/cuda-tests
// (node scripts/test-cuda.mjs --build-only).
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { mergeRuns, reportMarkdown } from '../build/cuda-tests/test/cuda/report.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { memcheck: { type: 'string' }, racecheck: { type: 'string' } },
});
const [name, ...runs] = positionals;
if (name === undefined || runs.length === 0) {
  console.error('Cannot make a report: want the name of the report and at least one run');
  process.exit(2);
}
const report = mergeRuns(
  runs.map((path) => JSON.parse(readFileSync(path, 'utf8'))),
  { memcheck: values.memcheck ?? 'not run', racecheck: values.racecheck ?? 'not run' },
);
mkdirSync(dirname(resolve(name)), { recursive: true });
for (const [path, text] of [
  [`${name}.json`, `${JSON.stringify(report, null, 1)}\n`],
  [`${name}.md`, reportMarkdown(report)],
]) {
  writeFileSync(`${path}.tmp`, text);
  renameSync(`${path}.tmp`, path);
}
console.log(`${name}: ${report.counts.passed} passed, ${report.counts.failures.length} failed`);
