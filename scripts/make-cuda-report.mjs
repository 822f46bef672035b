// node scripts/make-cuda-report.mjs docs/reports/cuda-h200 RESULTS...
// Writes NAME.json.br and NAME.md from all that lies in folders of results (or files): what `npm run test:cuda -- --report
// RUN.json` left, counters of a profiler, what compute-sanitizer said (test/cuda/find-runs.ts). Results of other kernel sources
// are named and left out. Without results NAME.md is written anew from NAME.json.br.
// Needs build/cuda-tests (node scripts/test-cuda.mjs --build-only).
import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { brotliCompressSync, brotliDecompressSync } from 'node:zlib';
import { kernelSourceDigest, readKernelUnits } from '../build/cuda-tests/src/backend/cuda/kernel-sources.js';
import { findResults } from '../build/cuda-tests/test/cuda/find-runs.js';
import { mergeRuns, reportMarkdown, reportSchema } from '../build/cuda-tests/test/cuda/report.js';

const [name, ...places] = process.argv.slice(2);
if (name === undefined) {
  console.error('Cannot make a report: want its name, and folders of results');
  process.exit(2);
}

function filesOf(place) {
  if (!statSync(place).isDirectory()) return [place];
  return readdirSync(place, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** An arm a line, times and rates to seven digits; bytes as they are. */
function reportText(report) {
  const short = (_, value) =>
    typeof value === 'number' && !Number.isInteger(value) && Math.abs(value) < 1e6
      ? Number(value.toPrecision(7))
      : value;
  return `${JSON.stringify(report, short).replaceAll('},{', '},\n{')}\n`;
}

function writtenReport() {
  return reportSchema.parse(JSON.parse(brotliDecompressSync(readFileSync(`${name}.json.br`)).toString()));
}

function write(path, bytes) {
  writeFileSync(`${path}.tmp`, bytes);
  renameSync(`${path}.tmp`, path);
}

if (places.length === 0) {
  write(`${name}.md`, reportMarkdown(writtenReport()));
  process.exit(0);
}
const files = places
  .flatMap(filesOf)
  .filter((path) => /\.(json|csv|txt)$/.test(path))
  .sort()
  .map((path) => ({ path, text: readFileSync(path, 'utf8') }));
const { runs, counters, sanitizer, leftOut } = findResults(
  files,
  kernelSourceDigest(readKernelUnits('native')),
);
for (const line of leftOut) console.log(`left out: ${line}`);
const report = mergeRuns(runs, { memcheck: 'not run', racecheck: 'not run', ...sanitizer }, counters);
mkdirSync(dirname(resolve(name)), { recursive: true });
write(`${name}.json.br`, brotliCompressSync(reportText(report)));
write(`${name}.md`, reportMarkdown(writtenReport()));
console.log(
  `${name}: ${runs.length} runs, ${report.counts.passed} passed, ${report.counts.failures.length} failed, ${counters.length} kernels counted`,
);
