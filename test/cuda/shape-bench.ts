import type { Backend } from '../../src/backend/backend.js';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { BudgetError } from '../../src/base/errors.js';
import { Arm, type ArmPlan, median, type PartTimes } from './shape-arm.js';
import { type ShapeModel, type ShapeName, writeShape } from './shape-model.js';
import { Rivals, type RivalTime } from './shape-rivals.js';

const mebibyte = 1024 * 1024;
const usualShare = 0.034;

/** What is measured; see test/cuda/main.ts for the flags. */
export interface ShapeBenchOptions {
  readonly shapes: readonly ShapeName[];
  /** Budgets as shares of the weights, for `packets` and `stream`; empty: the fixed budgets of the 2.7B shape. */
  readonly budgets: readonly number[];
  /** Active shares beside the usual one. */
  readonly shares: readonly number[];
  readonly promptTokens: number;
  readonly tokens: number;
  readonly rounds: number;
  readonly withCpu: boolean;
  /** A checkpoint that transformers can load (scripts/make-checkpoint.mjs), or null for no rivals. */
  readonly rivals: { readonly checkpoint: string; readonly python: string } | null;
  readonly openGpu?: () => Promise<Backend>;
}

/** One arm of the shape benchmark; medians over rounds in which all arms of a group take turns. */
export interface ArmTime {
  readonly shape: string;
  readonly activeShare: number;
  readonly arm: string;
  readonly regime: string;
  readonly plannedBytes: number;
  readonly devicePeakBytes: number | null;
  readonly pinnedBytes: number;
  readonly openMs: number;
  readonly loadGigabytesPerSecond: number;
  /** From the first call behind loading to its first token; a whole first call, and the second one. */
  readonly firstTokenMs: number;
  readonly firstEpisodeMs: number;
  readonly secondEpisodeMs: number;
  readonly prefillMs: number;
  readonly msPerToken: number; // median of all steps, as a caller sees it
  readonly bestMsPerToken: number;
  readonly deviceMsPerToken: number | null; // by events, passes of one submission alone
  readonly parts: PartTimes | null;
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

type Log = (line: string) => void;

/** Random weights in published sizes; digests of all arms of a group must agree. */
export async function benchShape(options: ShapeBenchOptions, log: Log): Promise<ShapeReport> {
  const arms: ArmTime[] = [];
  const failures: string[] = [];
  let rivalTimes: readonly RivalTime[] = [];
  let copyRate: number | null = null;
  for (const name of options.shapes) {
    const model = writeShape(name);
    try {
      model.setActiveShare(usualShare);
      const fixed = name === '2.7b' && options.budgets.length === 0;
      if (fixed) {
        const group = await runGroup(model, usualShare, usualArms, options, log);
        arms.push(...group.times);
        failures.push(...group.failures);
        rivalTimes = group.rivals;
        copyRate = group.copyRate;
        if (options.openGpu === undefined) {
          const openGpu = () => openCuda({ numerics: 'native' });
          const others = { ...options, rivals: null, withCpu: false, openGpu };
          const native = await runGroup(model, usualShare, nativeArms, others, log);
          arms.push(...native.times);
          failures.push(...native.failures);
        }
      } else {
        for (const plans of budgetArms(model, options.budgets)) {
          const group = await runGroup(model, usualShare, plans, { ...options, rivals: null }, log);
          arms.push(...group.times);
          failures.push(...group.failures);
        }
      }
      for (const share of options.shares) {
        model.setActiveShare(share);
        const plans = fixed ? shareArms : budgetArms(model, options.budgets.slice(0, 1)).flat();
        const quiet = { ...options, rivals: null, withCpu: false };
        const group = await runGroup(model, share, plans, quiet, log);
        arms.push(...group.times);
        failures.push(...group.failures);
      }
    } finally {
      model.remove();
    }
  }
  for (const failure of failures) log(`FAIL ${failure}`);
  return { arms, rivals: rivalTimes, copyGigabytesPerSecond: copyRate, failures };
}

/** All first projections have certificates there and none has to be streamed for a new token. */
const certifiedName = 'certified 3600 MiB';

const usualArms: readonly ArmPlan[] = [
  { name: 'resident', policy: 'resident', budget: Infinity },
  { name: 'resident-sparse', policy: 'resident-sparse', budget: Infinity },
  { name: 'packets 4800 MiB', policy: 'phase', budget: 4800 * mebibyte },
  { name: 'packets regime C', policy: 'phase', budget: 'regime C' },
  { name: certifiedName, policy: 'certified', budget: 3600 * mebibyte },
  { name: 'certified resident', policy: 'certified', budget: Infinity },
  { name: 'stream 4800 MiB', policy: 'stream', budget: 4800 * mebibyte },
  { name: 'stream strided 4800 MiB', policy: 'stream', budget: 4800 * mebibyte, streamLayout: 'strided' },
];

/** A group of its own: its digests agree with one another alone. */
const nativeArms: readonly ArmPlan[] = [
  { name: 'native resident', policy: 'resident', budget: Infinity },
  { name: 'native packets 4800 MiB', policy: 'phase', budget: 4800 * mebibyte },
  { name: 'native stream 4800 MiB', policy: 'stream', budget: 4800 * mebibyte },
];

const shareArms: readonly ArmPlan[] = [
  { name: 'resident-sparse', policy: 'resident-sparse', budget: Infinity },
  { name: 'packets 4800 MiB', policy: 'phase', budget: 4800 * mebibyte },
];

/** One group a budget, so that few models lie on the GPU at once. */
function budgetArms({ weightBytes }: ShapeModel, budgets: readonly number[]): ArmPlan[][] {
  const shares = budgets.length === 0 ? [0.4, 0.6, 0.8] : budgets;
  return shares.map((share) => {
    const budget = Math.floor(weightBytes * share);
    const text = `${Math.round(share * 100)} % of weights`;
    return [
      { name: 'resident', policy: 'resident', budget: Infinity },
      { name: `packets ${text}`, policy: 'phase', budget },
      { name: `certified ${text}`, policy: 'certified', budget },
      { name: 'certified resident', policy: 'certified', budget: Infinity },
      { name: `stream ${text}`, policy: 'stream', budget },
    ];
  });
}

/** Opens all arms, lets them and the rivals take turns, then looks at each by itself. */
async function runGroup(
  model: ShapeModel,
  share: number,
  plans: readonly ArmPlan[],
  options: ShapeBenchOptions,
  log: Log,
) {
  const { promptTokens, tokens, rounds, rivals: rivalOptions } = options;
  const opened: Arm[] = [];
  const times: ArmTime[] = [];
  const failures: string[] = [];
  let rivals: Rivals | null = null;
  let copyRate: number | null = null;
  try {
    for (const plan of plans) {
      const backend = await (options.openGpu ?? openCuda)();
      if (opened.length === 0) copyRate = await measuredCopyRate(backend, log);
      try {
        opened.push(await Arm.open(plan, backend, model.prepared, promptTokens));
      } catch (error) {
        if (!(error instanceof BudgetError)) throw error;
        log(`arm ${model.name} ${plan.name}: refused, ${error.message}`);
      }
    }
    if (rivalOptions !== null) rivals = await Rivals.start(rivalOptions, comparedBytes(opened), log);
    for (let round = 0; round < rounds; round += 1) {
      for (const arm of opened) await arm.episode(tokens);
      await rivals?.round(promptTokens, Math.min(tokens, 8));
    }
    for (const arm of opened) {
      const time = await timesOf(arm, model, share);
      times.push(time);
      log(lineOf(time));
      if (arm.plan.name === certifiedName && time.denseBytesPerToken > 0) {
        failures.push(`${time.shape} ${time.arm}: ${time.denseBytesPerToken} dense bytes a token`);
      }
      const exact = arm.session.backend.hostTier !== undefined; // else rows kept from before save an unplanned share
      if (exact && time.bytesPerToken !== time.plannedBytesPerToken) {
        failures.push(
          `${time.shape} ${time.arm}: ${time.bytesPerToken} bytes a token, the plan has ${time.plannedBytesPerToken}`,
        );
      }
    }
    if (options.withCpu) times.push(await cpuTimes(model, share, promptTokens));
    failures.push(...digestFailures(times, log));
    logRatios(times, rivals?.times() ?? [], copyRate, log);
    return { times, failures, rivals: rivals?.times() ?? [], copyRate };
  } finally {
    rivals?.stop();
    for (const arm of opened) await arm.close();
  }
}

/** Device bytes that offloading may use: what the arm with 4,800 MiB planned, or the largest that moves weights. */
function comparedBytes(arms: readonly Arm[]): number {
  const moving = arms.filter(({ session }) => session.plan.placement.regime !== 'resident');
  return Math.max(0, ...moving.map(({ session }) => session.plan.placement.totalBytes));
}

async function measuredCopyRate(backend: Backend, log: Log): Promise<number | null> {
  const tier = backend.hostTier;
  if (tier?.measureLink === undefined) return null;
  const rates = await tier.measureLink(5120);
  const text = Object.entries(rates).map(([name, rate]) => `${name} ${(rate / 1e9).toFixed(1)} GB/s`);
  log(`link: ${text.join(', ')}`);
  return rates.denseBytesPerSecond / 1e9;
}

async function timesOf(arm: Arm, model: ShapeModel, share: number): Promise<ArmTime> {
  const { placement } = arm.session.plan;
  const [first, second = first!, ...others] = arm.episodes;
  const warm = others.length > 0 ? [second, ...others] : [second];
  const steps = warm.flatMap(({ stepMs }) => stepMs.slice(1));
  const { rows, bytes } = await arm.movedPerToken();
  const device = await arm.deviceMs();
  const { moved } = placement;
  const rowShare = moved.packetNeurons === 0 ? 0 : rows / moved.packetNeurons;
  const usage = arm.gpu?.usage;
  return {
    shape: model.name,
    activeShare: share,
    arm: arm.plan.name,
    regime: placement.regime,
    plannedBytes: placement.totalBytes,
    devicePeakBytes: usage?.devicePeakBytes ?? null,
    pinnedBytes: usage?.pinnedBytes ?? 0,
    openMs: arm.openMs,
    loadGigabytesPerSecond: arm.loadRate / 1e9,
    firstTokenMs: first!.firstTokenMs,
    firstEpisodeMs: first!.totalMs,
    secondEpisodeMs: second.totalMs,
    prefillMs: median(warm.map(({ prefillMs }) => prefillMs)),
    msPerToken: median(steps),
    bestMsPerToken: Math.min(...steps),
    deviceMsPerToken: device?.ms ?? null,
    parts: device === null ? null : await arm.partTimes(device.ops),
    rowsPerToken: rows,
    bytesPerToken: bytes,
    plannedBytesPerToken:
      moved.denseDecodeBytes + moved.embeddingBytes + Math.round(moved.packetBytesAtFullActivity * rowShare),
    uncertainShare: arm.uncertainShare,
    overheadBytes: (arm.session.backend.overheads ?? []).reduce((sum, { bytes: held }) => sum + held, 0),
    denseBytesPerToken: moved.denseDecodeBytes,
    digests: first!.digests,
  };
}

/** The same prompt on the CPU of this host: its digests are what the GPU must give. */
async function cpuTimes(model: ShapeModel, share: number, promptTokens: number): Promise<ArmTime> {
  const plan = { name: 'cpu resident', policy: 'resident', budget: Infinity } as const;
  const backend = await openNative({ threads: 16 });
  const arm = await Arm.open(plan, backend, model.prepared, promptTokens);
  try {
    await arm.episode(8);
    return await timesOf(arm, model, share);
  } finally {
    await arm.close();
  }
}

function digestFailures(times: readonly ArmTime[], log: Log): string[] {
  const [first] = times;
  const failures: string[] = [];
  for (const { shape, arm, digests } of times) {
    const wrong = digests.findIndex((digest, index) => digest !== (first!.digests[index] ?? digest));
    if (wrong < 0) log(`ok   ${shape} digests of ${arm}: ${digests.length} tokens`);
    else failures.push(`${shape} ${arm}: token ${wrong} has another digest than ${first!.arm}`);
  }
  return failures;
}

function lineOf(time: ArmTime): string {
  const ms = (value: number | null, digits = 3) => (value === null ? '-' : value.toFixed(digits));
  const { parts } = time;
  const byPart =
    parts === null
      ? ''
      : `; attention ${ms(parts.attention)}, projections ${ms(parts.projections)}, rows ${ms(parts.rows)}, rest ${ms(parts.rest)}`;
  const uncertain =
    time.uncertainShare === null ? '' : `, ${(100 * time.uncertainShare).toFixed(2)} % uncertain`;
  return `arm ${time.shape} ${(time.activeShare * 100).toFixed(1)} % ${time.arm.padEnd(18)} regime ${time.regime}, ${(time.plannedBytes / mebibyte).toFixed(0)} MiB planned, ${(time.pinnedBytes / mebibyte).toFixed(0)} MiB pinned, load ${time.loadGigabytesPerSecond.toFixed(2)} GB/s, first token ${ms(time.firstTokenMs, 0)} ms, episodes ${ms(time.firstEpisodeMs, 0)} and ${ms(time.secondEpisodeMs, 0)} ms, prefill ${ms(time.prefillMs, 1)} ms, ${ms(time.msPerToken)} ms a token (best ${ms(time.bestMsPerToken)}, device ${ms(time.deviceMsPerToken)}${byPart}), ${time.rowsPerToken.toFixed(0)} rows, ${(time.bytesPerToken / 1e6).toFixed(2)} MB a token, ${(time.overheadBytes / mebibyte).toFixed(0)} MiB of context${uncertain}`;
}

/** Every median against `packets`, the rivals among them; `stream` against the rate of the link. */
function logRatios(
  times: readonly ArmTime[],
  rivals: readonly RivalTime[],
  copyRate: number | null,
  log: Log,
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
