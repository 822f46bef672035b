import type { CountedKernel } from './counters.js';
import type { ReportedArm } from './report.js';

interface ReportedRival {
  readonly rival: string;
  readonly msPerToken: number;
  readonly prefillMs: number;
  readonly peakDeviceBytes: number;
}

/** Arms of published shapes, what runs beside them, and where a token's time goes. */
export function shapeTables(
  arms: readonly ReportedArm[],
  rivals: readonly ReportedRival[],
  copyGigabytesPerSecond: number | null,
): string[] {
  const rate =
    copyGigabytesPerSecond === null ? '' : `, copy engine at ${copyGigabytesPerSecond.toFixed(1)} GB/s`;
  const lines = [
    `## Published shapes${rate}`,
    '',
    '| shape | active, % | arm | regime | planned bytes | prefill, ms | a token, ms | on the device, ms | rows a token | bytes a token | by the plan |',
    '|---|---|---|---|---|---|---|---|---|---|---|',
    ...arms.map(
      (arm) =>
        `| ${arm.shape} | ${percent(arm)} | ${cell(arm.arm)} | ${arm.regime} | ${arm.plannedBytes} | ${arm.prefillMs.toFixed(1)} | ${arm.msPerToken.toFixed(3)} | ${arm.deviceMsPerToken?.toFixed(3) ?? '-'} | ${arm.rowsPerToken.toFixed(0)} | ${arm.bytesPerToken.toFixed(0)} | ${arm.plannedBytesPerToken.toFixed(0)} |`,
    ),
    ...rivals.map(
      ({ rival, prefillMs, msPerToken, peakDeviceBytes }) =>
        `| 2.7b | | ${cell(rival)}, at most ${peakDeviceBytes} B on the device | | | ${prefillMs.toFixed(1)} | ${msPerToken.toFixed(3)} | | | | |`,
    ),
  ];
  lines.push(...firstEpisodeTable(arms), ...overlapTable(arms), ...predictionTable(arms));
  const split = arms.filter(({ parts }) => parts !== null);
  if (split.length === 0) return lines;
  return [
    ...lines,
    '',
    '## A token by part, ms on the device',
    '',
    'Rows are second projections, whole or by active rows; norms and stores belong to the products that they are part of. All ops of a part run as one',
    'graph between two events, one part behind another; parts then cannot run into one another, and their sum may differ from the pass. Where the host takes',
    'part in a pass ("submissions"), its ops are joined for this, and read weights from where they were moved last. Waits for weights that move whole are in no',
    'part: they and the host are what is left of the time a token.',
    '',
    '| shape | active, % | arm | attention | projections | rows | rest | sum | pass | measured by |',
    '|---|---|---|---|---|---|---|---|---|---|',
    ...split.map(({ parts, ...arm }) => {
      const { attention, projections, rows, rest } = parts!;
      const each = [attention, projections, rows, rest, attention + projections + rows + rest];
      return `| ${arm.shape} | ${percent(arm)} | ${cell(arm.arm)} | ${each.map((ms) => ms.toFixed(3)).join(' | ')} | ${arm.deviceMsPerToken?.toFixed(3) ?? '-'} | ${arm.partsBy ?? 'pass'} |`;
    }),
  ];
}

/** What the first use of an arm cost beside the second; nothing where no run told. */
function firstEpisodeTable(arms: readonly ReportedArm[]): string[] {
  const told = arms.flatMap((arm) => (typeof arm.firstEpisodeMs === 'number' ? [arm] : []));
  if (told.length === 0) return [];
  return [
    '',
    '## First use',
    '',
    'Loading, then the first episode of a session (its graphs are captured in it) beside the second, of equal lengths.',
    '',
    '| shape | active, % | arm | load, GB/s | first token, ms | first episode, ms | second, ms | most used on the device, B | pinned, B |',
    '|---|---|---|---|---|---|---|---|---|',
    ...told.map(
      (arm) =>
        `| ${arm.shape} | ${percent(arm)} | ${cell(arm.arm)} | ${shown(arm.loadGigabytesPerSecond, 1)} | ${shown(arm.firstTokenMs, 0)} | ${shown(arm.firstEpisodeMs, 0)} | ${shown(arm.secondEpisodeMs, 0)} | ${shown(arm.devicePeakBytes, 0)} | ${shown(arm.pinnedBytes, 0)} |`,
    ),
  ];
}

/** How copies and kernels shared the device in decode passes; nothing where no run told. */
function overlapTable(arms: readonly ReportedArm[]): string[] {
  const copying = arms.flatMap(({ overlap, ...arm }) => (overlap ? [{ ...arm, ...overlap }] : []));
  if (copying.length === 0) return [];
  return [
    '',
    '## Copies beside kernels',
    '',
    'A decode pass by time stamps of the device, in milliseconds. Overlap: the share of the time of copies in which kernels ran, too. Exposed: copies ran and no',
    'kernel did. Gaps: neither ran, so the device waited for the host.',
    '',
    '| shape | active, % | arm | kernels | copies | overlap, % | exposed | gaps |',
    '|---|---|---|---|---|---|---|---|',
    ...copying.map((arm) => {
      const overlap = arm.regionOverlap === null ? '-' : (100 * arm.regionOverlap).toFixed(1);
      return `| ${arm.shape} | ${percent(arm)} | ${cell(arm.arm)} | ${arm.computeMs.toFixed(2)} | ${arm.copyMs.toFixed(2)} | ${overlap} | ${arm.exposedWaitMs.toFixed(2)} | ${arm.dispatchGapMs.toFixed(2)} |`;
    }),
  ];
}

function shown(value: unknown, decimals: number): string {
  return typeof value === 'number' ? value.toFixed(decimals) : '-';
}

/** What the planner's prices came to; nothing where no arm was priced. */
function predictionTable(arms: readonly ReportedArm[]): string[] {
  const priced = arms.flatMap(({ predictedMsPerToken, ...arm }) =>
    typeof predictedMsPerToken === 'number' ? [{ ...arm, predicted: predictedMsPerToken }] : [],
  );
  if (priced.length === 0) return [];
  return [
    '',
    '## Predicted and measured time of a token',
    '',
    "By the plan's prices at the share of neurons that was active, from rates measured before an arm was opened; reading the cache in attention is not priced.",
    '',
    '| shape | active, % | arm | predicted, ms | measured, ms | error, % |',
    '|---|---|---|---|---|---|',
    ...priced.map(
      (arm) =>
        `| ${arm.shape} | ${percent(arm)} | ${cell(arm.arm)} | ${arm.predicted.toFixed(3)} | ${arm.msPerToken.toFixed(3)} | ${(100 * (arm.predicted / arm.msPerToken - 1)).toFixed(1)} |`,
    ),
  ];
}

/** Kernels of a decode pass as a profiler saw each alone. */
export function counterTable(counters: readonly CountedKernel[]): string[] {
  return [
    '## Hardware counters of a decode pass',
    '',
    'One pass of two layers of the 2.7b shape and the head, at 512 positions and 3.4 % of neurons active, each kernel alone behind cold caches (`ncu',
    '--clock-control none`). Stalls are warps that waited, on average, for each instruction that was issued.',
    '',
    '| arm | op | kernel | us | memory read, GB/s | of its peak, % | occupancy, % | registers | stalls |',
    '|---|---|---|---|---|---|---|---|---|',
    ...counters.map(
      (one) =>
        `| ${one.arm} | ${cell(one.label)} | ${cell(one.kernel)} | ${one.microseconds.toFixed(2)} | ${one.dramGigabytesPerSecond.toFixed(0)} | ${one.dramShare.toFixed(0)} | ${one.occupancy.toFixed(0)} | ${one.registers} | ${one.stalls.map(({ reason, warps }) => `${reason} ${warps.toFixed(1)}`).join(', ')} |`,
    ),
  ];
}

function percent({ activeShare }: Pick<ReportedArm, 'activeShare'>): string {
  return (100 * activeShare).toFixed(1);
}

export function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('\n', ' ');
}
