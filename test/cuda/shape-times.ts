import { type MachineRates, priceToken } from '../../src/acquire/price.js';
import type { OverlapFigures } from './overlap.js';
import { median, type PassTimes } from './pass-times.js';
import type { Arm } from './shape-arm.js';
import type { RivalTime } from './shape-rivals.js';

const mebibyte = 1024 * 1024;

/** One arm of the shape benchmark; medians over rounds in which all arms of a group take turns. */
export interface ArmTime {
  readonly shape: string;
  readonly activeShare: number;
  readonly arm: string;
  readonly regime: string;
  readonly weightBytes: number;
  readonly plannedBytes: number;
  readonly devicePeakBytes: number | null;
  readonly pinnedBytes: number;
  readonly openMs: number;
  readonly loadGigabytesPerSecond: number;
  /**
   * From the first call behind loading to its first token; a whole first call, and the second one. Null where the share of
   * active neurons was changed in an arm that had run before.
   */
  readonly firstTokenMs: number | null;
  readonly firstEpisodeMs: number | null;
  readonly secondEpisodeMs: number | null;
  readonly prefillMs: number;
  readonly msPerToken: number; // median of all steps, as a caller sees it
  readonly bestMsPerToken: number;
  /** By the plan at the share that was active, at rates measured before an arm was opened; null where none were. */
  readonly predictedMsPerToken: number | null;
  readonly deviceMsPerToken: number | null; // by events, passes of one submission alone
  readonly parts: PassTimes['parts'] | null;
  readonly partsBy: PassTimes['partsBy'] | null;
  /** Of arms that copy weights beside kernels; see `Arm.overlap`. */
  readonly overlap: OverlapFigures | null;
  readonly rowsPerToken: number;
  readonly bytesPerToken: number;
  /** By the plan at the share of neurons that was active. */
  readonly plannedBytesPerToken: number;
  /** Of certificates; null where they are not used or not counted. */
  readonly uncertainShare: number | null;
  /** What the backend holds beside weights, cache and workspace, by the plan. */
  readonly overheadBytes: number;
  /** Of weights that are not resident and move whole, a decode token. */
  readonly denseBytesPerToken: number;
  readonly digests: readonly string[];
}

export interface ShapeReport {
  readonly arms: readonly ArmTime[];
  readonly rivals: readonly RivalTime[];
  readonly copyGigabytesPerSecond: number | null;
  readonly failures: readonly string[];
}

/** What an arm's episodes come to. `first`: nothing ran in the arm before them. */
export async function armTime(
  arm: Arm,
  shape: {
    readonly name: string;
    readonly weightBytes: number;
    readonly share: number;
    readonly rates: MachineRates | null;
  },
  first: boolean,
): Promise<ArmTime> {
  const { placement } = arm.session.plan;
  const [cold, second = cold!, ...others] = arm.episodes;
  const warm = arm.episodes.length > 1 && first ? [second, ...others] : arm.episodes;
  const steps = warm.flatMap(({ stepMs }) => stepMs.slice(1));
  const { rows, bytes, passes } = await arm.movedByDecode();
  const device = await arm.passTimes(first ? 10 : 6);
  const { moved } = placement;
  const plannedRows =
    moved.packetNeurons === 0
      ? 0
      : Math.round((moved.packetBytesAtFullActivity * rows) / moved.packetNeurons);
  const usage = arm.gpu?.usage;
  return {
    shape: shape.name,
    activeShare: shape.share,
    arm: arm.plan.name,
    regime: placement.regime,
    weightBytes: shape.weightBytes,
    plannedBytes: placement.totalBytes,
    devicePeakBytes: usage?.devicePeakBytes ?? null,
    pinnedBytes: usage?.pinnedBytes ?? 0,
    openMs: arm.openMs,
    loadGigabytesPerSecond: arm.loadRate / 1e9,
    firstTokenMs: first ? cold!.firstTokenMs : null,
    firstEpisodeMs: first ? cold!.totalMs : null,
    secondEpisodeMs: first ? second.totalMs : null,
    prefillMs: median(warm.map(({ prefillMs }) => prefillMs)),
    msPerToken: median(steps),
    bestMsPerToken: Math.min(...steps),
    predictedMsPerToken: shape.rates === null ? null : predictedMs(arm, shape.share, shape.rates),
    deviceMsPerToken: device?.ms ?? null,
    parts: device?.parts ?? null,
    partsBy: device?.partsBy ?? null,
    overlap: first ? await arm.overlap(10) : null,
    rowsPerToken: rows / passes,
    bytesPerToken: bytes / passes,
    plannedBytesPerToken: (passes * (moved.denseDecodeBytes + moved.embeddingBytes) + plannedRows) / passes,
    uncertainShare: arm.uncertainShare,
    overheadBytes: (arm.session.backend.overheads ?? []).reduce((sum, { bytes: held }) => sum + held, 0),
    denseBytesPerToken: moved.denseDecodeBytes,
    digests: cold!.digests,
  };
}

/** Of the placement that was opened, at the share of neurons that was active then. */
function predictedMs({ session }: Arm, activeShare: number, rates: MachineRates): number {
  const { placement } = session.plan;
  const { moved } = placement;
  const expectedPacketBytes = (moved.expectedPacketBytes * activeShare) / moved.activeShare;
  const at = { ...placement, moved: { ...moved, activeShare, expectedPacketBytes } };
  return priceToken(at, rates, session.backend.hostTier !== undefined).totalMs;
}

export function lineOf(time: ArmTime): string {
  const ms = (value: number | null, digits = 3) => (value === null ? '-' : value.toFixed(digits));
  const { parts } = time;
  const byPart =
    parts === null
      ? ''
      : `; attention ${ms(parts.attention)}, projections ${ms(parts.projections)}, rows ${ms(parts.rows)}, rest ${ms(parts.rest)} by ${time.partsBy}`;
  const { overlap } = time;
  const shared =
    overlap === null
      ? ''
      : `; copies ${ms(overlap.copyMs)} ms, ${ms(overlap.regionOverlap)} of them beside kernels, ${ms(overlap.exposedWaitMs)} ms exposed, gaps ${ms(overlap.dispatchGapMs)} ms`;
  const uncertain =
    time.uncertainShare === null ? '' : `, ${(100 * time.uncertainShare).toFixed(2)} % uncertain`;
  const opening =
    time.firstTokenMs === null
      ? ''
      : `load ${time.loadGigabytesPerSecond.toFixed(2)} GB/s, first token ${ms(time.firstTokenMs, 0)} ms, episodes ${ms(time.firstEpisodeMs, 0)} and ${ms(time.secondEpisodeMs, 0)} ms, `;
  return `arm ${time.shape} ${(time.activeShare * 100).toFixed(1)} % ${time.arm.padEnd(18)} regime ${time.regime}, ${(time.plannedBytes / mebibyte).toFixed(0)} MiB planned, ${(time.pinnedBytes / mebibyte).toFixed(0)} MiB pinned, ${opening}prefill ${ms(time.prefillMs, 1)} ms, ${ms(time.msPerToken)} ms a token (predicted ${ms(time.predictedMsPerToken)}, best ${ms(time.bestMsPerToken)}, device ${ms(time.deviceMsPerToken)}${byPart}), ${time.rowsPerToken.toFixed(0)} rows, ${(time.bytesPerToken / 1e6).toFixed(2)} MB a token, ${(time.overheadBytes / mebibyte).toFixed(0)} MiB of context${uncertain}${shared}`;
}

/** Every median against `packets`, the rivals among them; `stream` against the rate of the link. */
export function logRatios(
  times: readonly ArmTime[],
  rivals: readonly RivalTime[],
  copyRate: number | null,
  log: (line: string) => void,
): void {
  const packets = times.find(({ arm }) => arm.startsWith('packets'));
  if (packets === undefined) return;
  for (const { arm, msPerToken } of [...times, ...rivals.map((r) => ({ ...r, arm: r.rival }))]) {
    if (arm !== packets.arm)
      log(`ratio ${arm} / ${packets.arm}: ${(msPerToken / packets.msPerToken).toFixed(2)}`);
  }
  const stream = times.find(({ arm }) => arm.startsWith('stream'));
  if (stream === undefined || copyRate === null) return;
  const rate = stream.bytesPerToken / stream.msPerToken / 1e6;
  log(
    `ratio ${stream.arm}: ${rate.toFixed(1)} of ${copyRate.toFixed(1)} GB/s, ${(rate / copyRate).toFixed(3)}`,
  );
}
