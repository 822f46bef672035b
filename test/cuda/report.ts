import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { CountedKernel } from './counters.js';
import { cell, counterTable, shapeTables } from './report-tables.js';

const digest = z.string().regex(/^[0-9a-f]{64}$/);
const countsSchema = z.object({
  passed: z.int().nonnegative(),
  failures: z.array(z.object({ name: z.string(), message: z.string() })),
});

const partSchema = z.object({
  attention: z.number(),
  projections: z.number(),
  rows: z.number(),
  rest: z.number(),
});
/** `test/cuda/shape-times.ts` says what each field is. */
const armSchema = z.looseObject({
  shape: z.string(),
  activeShare: z.number(),
  arm: z.string(),
  regime: z.string(),
  plannedBytes: z.number(),
  prefillMs: z.number(),
  msPerToken: z.number(),
  deviceMsPerToken: z.number().nullable(),
  predictedMsPerToken: z.number().nullable().optional(),
  parts: partSchema.nullable(),
  partsBy: z.enum(['pass', 'submissions']).nullable().optional(),
  rowsPerToken: z.number(),
  bytesPerToken: z.number(),
  plannedBytesPerToken: z.number(),
  /** Of arms that copy weights beside kernels: test/cuda/overlap.ts. */
  overlap: z
    .strictObject({
      computeMs: z.number(),
      copyMs: z.number(),
      regionOverlap: z.number().nullable(),
      exposedWaitMs: z.number(),
      dispatchGapMs: z.number(),
    })
    .nullable()
    .optional(),
});
export type ReportedArm = z.infer<typeof armSchema>;
const rivalSchema = z.looseObject({
  rival: z.string(),
  msPerToken: z.number(),
  prefillMs: z.number(),
  peakDeviceBytes: z.number(),
});
const countedSchema = z.strictObject({
  arm: z.string(),
  label: z.string(),
  kernel: z.string(),
  microseconds: z.number(),
  dramGigabytesPerSecond: z.number(),
  dramShare: z.number(),
  occupancy: z.number(),
  registers: z.number(),
  stalls: z.array(z.strictObject({ reason: z.string(), warps: z.number() })),
});

/** What `npm run test:cuda -- --report FILE` writes; times of kernels and shapes are kept as they come. */
export const runSchema = z.object({
  parts: z.array(z.string()),
  driver: z.string(),
  kernelSources: digest,
  device: z.object({
    name: z.string(),
    architecture: z.int(),
    totalBytes: z.int(),
    multiprocessors: z.int(),
  }),
  kernels: z.object({ kernels: z.string(), reason: z.string() }),
  date: z.iso.datetime(),
  counts: countsSchema,
  parity: z.array(z.object({ model: z.string(), compared: z.int(), digest })),
  times: z.array(
    z.looseObject({ name: z.string(), microseconds: z.number(), gigabytesPerSecond: z.number() }),
  ),
  shape: z
    .object({
      arms: z.array(armSchema),
      rivals: z.array(rivalSchema),
      copyGigabytesPerSecond: z.number().nullable(),
    })
    .nullable(),
});
type Run = z.infer<typeof runSchema>;

export const reportSchema = z.strictObject({
  format: z.literal('waybill-cuda-report/1'),
  device: runSchema.shape.device,
  driver: z.string(),
  /** SHA-256 over all kernel sources, those of native numerics included. */
  kernelSources: digest,
  dates: z.array(z.iso.datetime()).min(1),
  counts: countsSchema,
  parity: runSchema.shape.parity,
  times: runSchema.shape.times,
  shape: runSchema.shape.shape,
  /** Hardware counters of the kernels of one decode pass; absent where no profiler ran. */
  counters: z.array(countedSchema).optional(),
  /** What compute-sanitizer said, by tool, or why it did not run. */
  sanitizer: z.record(z.string(), z.string()),
});
export type CudaReport = z.infer<typeof reportSchema>;

/** One report of several runs on one device, with one driver, of one set of kernel sources. */
export function mergeRuns(
  found: readonly unknown[],
  sanitizer: Readonly<Record<string, string>>,
  counters: readonly CountedKernel[] = [],
): CudaReport {
  const runs = found.map((one) => runSchema.parse(one));
  const [first, ...others] = runs;
  if (first === undefined) throw new Error('Cannot make a report of no run');
  for (const other of others)
    for (const field of ['device', 'driver', 'kernelSources'] as const)
      if (JSON.stringify(other[field]) !== JSON.stringify(first[field]))
        throw new Error(
          `Cannot make one report of runs that differ in "${field}": ${JSON.stringify(first[field])} and ${JSON.stringify(other[field])}`,
        );
  const shapes = runs.flatMap(({ shape }) => (shape === null ? [] : [shape]));
  return {
    format: 'waybill-cuda-report/1',
    device: first.device,
    driver: first.driver,
    kernelSources: first.kernelSources,
    dates: runs.map(({ date }) => date),
    counts: {
      passed: runs.reduce((sum, { counts }) => sum + counts.passed, 0),
      failures: runs.flatMap(({ counts }) => counts.failures),
    },
    parity: runs.flatMap(({ parity }) => parity),
    times: runs.flatMap(({ times }) => times),
    shape:
      shapes.length === 0
        ? null
        : {
            arms: shapes.flatMap(({ arms }) => arms.map(withOneDigest)),
            rivals: shapes.flatMap(({ rivals }) => rivals),
            copyGigabytesPerSecond: shapes[0]!.copyGigabytesPerSecond,
          },
    ...(counters.length === 0 ? {} : { counters: z.array(countedSchema).parse(counters) }),
    sanitizer,
  };
}

/** One digest over those of all tokens: arms are many, and equal ones say no more twice. */
function withOneDigest({ digests, ...arm }: ReportedArm): ReportedArm {
  if (!Array.isArray(digests)) return arm;
  const sha256 = createHash('sha256').update(digests.join('\n')).digest('hex');
  return { ...arm, logits: { tokens: digests.length, sha256 } };
}

/** The report for people; a function of the JSON alone. */
export function reportMarkdown(report: CudaReport): string {
  const { device, driver, kernelSources, dates, counts, parity, times, shape, counters, sanitizer } = report;
  const lines = [
    `# ${device.name}`,
    '',
    'Made by `node scripts/make-cuda-report.mjs` from runs of `npm run test:cuda`; the JSON beside it (Brotli) holds everything.',
    '',
    '| | |',
    '|---|---|',
    `| device | ${device.name}, compute capability ${device.architecture / 10}, ${device.multiprocessors} multiprocessors, ${device.totalBytes} B |`,
    `| driver | serves CUDA ${driver} |`,
    `| dates | ${dates.join(', ')} |`,
    `| kernel sources | \`${kernelSources}\` |`,
    `| checks | ${counts.passed} passed, ${counts.failures.length} failed |`,
    ...Object.entries(sanitizer).map(([tool, said]) => `| compute-sanitizer ${tool} | ${said} |`),
    ...counts.failures.map(({ name, message }) => `| failed | ${cell(`${name}: ${message}`)} |`),
  ];
  if (parity.length > 0)
    lines.push(
      '',
      '## Logits digests equal to those of the CPU',
      '',
      '| model | compared | last digest |',
      '|---|---|---|',
      ...parity.map((one) => `| ${one.model} | ${one.compared} | \`${one.digest}\` |`),
    );
  if (shape !== null) lines.push('', ...shapeTables(shape.arms, shape.rivals, shape.copyGigabytesPerSecond));
  if (counters !== undefined) lines.push('', ...counterTable(counters));
  if (times.length > 0)
    lines.push(
      '',
      '## Kernels alone',
      '',
      '| kernel | microseconds | GB/s |',
      '|---|---|---|',
      ...times.map(
        (one) =>
          `| ${cell(one.name)} | ${one.microseconds.toFixed(2)} | ${one.gigabytesPerSecond.toFixed(0)} |`,
      ),
    );
  return `${lines.join('\n')}\n`;
}

/** Why a committed report says nothing of these kernels; null where it does. */
export function staleness(report: CudaReport, kernelSources: string): string | null {
  if (report.kernelSources === kernelSources) return null;
  return `it measured kernel sources ${report.kernelSources.slice(0, 16)}, they are ${kernelSources.slice(0, 16)} now: run npm run test:cuda again and make the report anew`;
}

export type { Run };
