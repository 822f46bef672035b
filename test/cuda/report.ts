import { z } from 'zod';

const digest = z.string().regex(/^[0-9a-f]{64}$/);
const countsSchema = z.object({
  passed: z.int().nonnegative(),
  failures: z.array(z.object({ name: z.string(), message: z.string() })),
});

/** What `npm run test:cuda -- --report FILE` writes; times of kernels and shapes are kept as they come. */
const runSchema = z.object({
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
      arms: z.array(
        z.looseObject({
          shape: z.string(),
          arm: z.string(),
          regime: z.string(),
          plannedBytes: z.number(),
          prefillMs: z.number(),
          msPerToken: z.number(),
          deviceMsPerToken: z.number().nullable(),
          rowsPerToken: z.number(),
        }),
      ),
      rivals: z.array(z.looseObject({})),
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
  /** What compute-sanitizer said, by tool, or why it did not run. */
  sanitizer: z.record(z.string(), z.string()),
});
export type CudaReport = z.infer<typeof reportSchema>;

/** One report of several runs on one device, with one driver, of one set of kernel sources. */
export function mergeRuns(
  found: readonly unknown[],
  sanitizer: Readonly<Record<string, string>>,
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
            arms: shapes.flatMap(({ arms }) => arms),
            rivals: shapes.flatMap(({ rivals }) => rivals),
            copyGigabytesPerSecond: shapes[0]!.copyGigabytesPerSecond,
          },
    sanitizer,
  };
}

/** The report for people; a function of the JSON alone. */
export function reportMarkdown(report: CudaReport): string {
  const { device, driver, kernelSources, dates, counts, parity, times, shape, sanitizer } = report;
  const lines = [
    `# ${device.name}`,
    '',
    'Made by `node scripts/make-cuda-report.mjs` from runs of `npm run test:cuda`; the JSON beside it holds everything.',
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
  if (shape !== null)
    lines.push(
      '',
      `## Published shapes${shape.copyGigabytesPerSecond === null ? '' : `, copy engine at ${shape.copyGigabytesPerSecond.toFixed(1)} GB/s`}`,
      '',
      '| shape | arm | regime | planned bytes | prefill, ms | a token, ms | on the device, ms | rows a token |',
      '|---|---|---|---|---|---|---|---|',
      ...shape.arms.map(
        (arm) =>
          `| ${arm.shape} | ${cell(arm.arm)} | ${arm.regime} | ${arm.plannedBytes} | ${arm.prefillMs.toFixed(1)} | ${arm.msPerToken.toFixed(3)} | ${arm.deviceMsPerToken?.toFixed(3) ?? '-'} | ${arm.rowsPerToken.toFixed(0)} |`,
      ),
    );
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

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('\n', ' ');
}

export type { Run };
