import { type CountedKernel, type CountedPass, countedKernels } from './counters.js';
import { type Run, runSchema } from './report.js';

/** A file that lies among results. */
export interface ResultFile {
  /** As it is to be named to a person; its end says what it is. */
  readonly path: string;
  readonly text: string;
}

/** What a report is made of, and what of the files is not in it. */
export interface FoundResults {
  readonly runs: readonly Run[];
  readonly counters: readonly CountedKernel[];
  readonly sanitizer: Readonly<Record<string, string>>;
  readonly leftOut: readonly string[];
}

const sanitizers = ['memcheck', 'racecheck'] as const;

/**
 * Sorts result files by what they are: runs of `npm run test:cuda -- --report NAME.json` on these kernel sources, decode
 * passes NAME.pass.json with what a profiler wrote beside them as NAME.counters.csv, and what compute-sanitizer said, as
 * memcheck.txt and racecheck.txt. Of runs of the same work the last one counts.
 */
export function findResults(files: readonly ResultFile[], kernelSources: string): FoundResults {
  const leftOut: string[] = [];
  const runs = new Map<string, { readonly run: Run; readonly path: string }>();
  const counters: CountedKernel[] = [];
  const sanitizer: Record<string, string> = {};
  for (const { path, text } of files) {
    const tool = sanitizers.find((name) => path.endsWith(`${name}.txt`));
    if (tool !== undefined) {
      sanitizer[tool] = sanitizerText(tool, text);
    } else if (path.endsWith('.pass.json')) {
      const beside = path.replace(/\.pass\.json$/, '.counters.csv');
      const csv = files.find((other) => other.path === beside);
      if (csv === undefined) leftOut.push(`${path}: "${beside}" is not beside it`);
      else counters.push(...countedKernels(JSON.parse(text) as CountedPass, csv.text));
    } else if (path.endsWith('.json')) {
      const run = runOf(text);
      if (run === null) leftOut.push(`${path}: it is no run`);
      else if (run.kernelSources !== kernelSources) {
        leftOut.push(`${path}: it measured kernel sources ${run.kernelSources.slice(0, 16)}`);
      } else {
        const known = runs.get(workOf(run));
        const [older, newer] =
          known === undefined || known.run.date < run.date ? [known, { run, path }] : [{ run, path }, known];
        if (older !== undefined) leftOut.push(`${older.path}: "${newer.path}" did the same later`);
        runs.set(workOf(run), newer);
      }
    }
  }
  return { runs: [...runs.values()].map(({ run }) => run), counters, sanitizer, leftOut };
}

function runOf(text: string): Run | null {
  try {
    return runSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** What a run looked at: two that agree in it are one measurement, made twice. */
function workOf({ parts, parity, shape }: Run): string {
  const arms = shape?.arms.map(({ shape: name, arm, activeShare }) => `${name} ${arm} ${activeShare}`) ?? [];
  return JSON.stringify([[...parts].sort(), parity.map(({ model }) => model).sort(), arms.sort()]);
}

/** "0 errors: 124 kernels in 121 cases" */
function sanitizerText(tool: (typeof sanitizers)[number], text: string): string {
  const found =
    tool === 'memcheck'
      ? /ERROR SUMMARY: (\d+) errors?/.exec(text)
      : /RACECHECK SUMMARY: (\d+) hazards?/.exec(text);
  const cases = /sanitize: (\d+ kernels in \d+ cases)/.exec(text)?.[1];
  if (found === null || cases === undefined) return 'not run to its end';
  return `${found[1]} ${tool === 'memcheck' ? 'errors' : 'hazards'}: ${cases}`;
}
