import type { MachineRates } from '../../src/acquire/price.js';
import type { Backend } from '../../src/backend/backend.js';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { nativeTransposer } from '../../src/backend/cpu/native-transpose.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { BudgetError } from '../../src/base/errors.js';
import { measureRates } from '../../src/generate/measure-rates.js';
import { Arm, type ArmPlan } from './shape-arm.js';
import { certifiedName, groupsOf, type ShapeGroup } from './shape-arms.js';
import { type ShapeModel, type ShapeName, writeShape } from './shape-model.js';
import { Rivals } from './shape-rivals.js';
import { type ArmTime, armTime, lineOf, logRatios, type ShapeReport } from './shape-times.js';

export type { ArmTime, ShapeReport } from './shape-times.js';

/** What is measured; see test/cuda/main.ts for the flags. */
export interface ShapeBenchOptions {
  readonly shapes: readonly ShapeName[];
  /** Budgets as shares of the weights, for `packets` and `stream`; empty: the fixed budgets of the 2.7B shape. */
  readonly budgets: readonly number[];
  /** Active shares beside the usual one. */
  readonly shares: readonly number[];
  /** First words of the names of arms; empty: all. */
  readonly arms: readonly string[];
  readonly promptTokens: number;
  readonly tokens: number;
  readonly rounds: number;
  readonly withCpu: boolean;
  /** A checkpoint that transformers can load (scripts/make-checkpoint.mjs), or null for no rivals. */
  readonly rivals: { readonly checkpoint: string; readonly python: string } | null;
  readonly openGpu?: () => Promise<Backend>;
}

type Log = (line: string) => void;

/** Of models other than 2.7B, whose every layer has been its own since the first report: what is written, not what is opened. */
const distinctLayers = 4;
/** More show little in arms that take a tenth of a second a token. */
const fewTokens = 8;

/** Random weights in published sizes; digests of all arms of a shape must agree at each share of active neurons. */
export async function benchShape(options: ShapeBenchOptions, log: Log): Promise<ShapeReport> {
  const found: Found = { arms: [], failures: [], rivals: [], copyRate: null, rates: null };
  for (const name of options.shapes) {
    const began = Date.now();
    const model = writeShape(name, name === '2.7b' ? Number.POSITIVE_INFINITY : distinctLayers);
    log(`${name}: ${model.weightBytes} bytes of weights, written in ${Date.now() - began} ms`);
    const earlier = found.arms.length;
    try {
      for (const group of groupsOf(model, { ...options, native: options.openGpu === undefined })) {
        await runGroup(model, group, options, found, log);
      }
    } finally {
      model.remove();
    }
    found.failures.push(...digestFailures(found.arms.slice(earlier), log));
  }
  for (const failure of found.failures) log(`FAIL ${failure}`);
  const { arms, rivals, copyRate, failures } = found;
  return { arms, rivals, copyGigabytesPerSecond: copyRate, failures };
}

interface Found {
  readonly arms: ArmTime[];
  readonly failures: string[];
  rivals: ShapeReport['rivals'];
  copyRate: number | null;
  /** Of the group that runs. */
  rates: MachineRates | null;
}

/** Opens all arms of a group, lets them and the rivals take turns, then looks at each by itself. */
async function runGroup(
  model: ShapeModel,
  { arms: plans, shares, native, compared }: ShapeGroup,
  options: ShapeBenchOptions,
  found: Found,
  log: Log,
): Promise<void> {
  const { promptTokens, tokens, rounds } = options;
  const opened: Arm[] = [];
  let rivals: Rivals | null = null;
  found.rates = null;
  try {
    model.setActiveShare(shares[0]!);
    const numerics = native ? 'native' : 'portable';
    const readTransposed = nativeTransposer();
    const open = options.openGpu ?? (() => openCuda({ numerics, readTransposed }));
    for (const plan of plans) {
      const backend = await open();
      found.copyRate ??= await measuredCopyRate(backend, log);
      found.rates ??= await measuredRates(backend, model, shares[0]!, promptTokens, log);
      const arm = await openArm(model, plan, backend, promptTokens, log);
      if (arm !== null) opened.push(arm);
    }
    if (compared && options.rivals !== null)
      rivals = await Rivals.start(options.rivals, comparedBytes(opened), log);
    for (const [index, share] of shares.entries()) {
      const turns = index === 0 ? opened : opened.filter(({ plan }) => plan.sweeps === true);
      if (index > 0) for (const arm of turns) arm.setActiveShare(model, share);
      for (let round = 0; round < (index === 0 ? rounds : 1); round += 1) {
        for (const arm of turns) await arm.episode(slow(arm) ? Math.min(tokens, fewTokens) : tokens);
        if (index === 0) await rivals?.round(promptTokens, Math.min(tokens, 8));
      }
      const times: ArmTime[] = [];
      for (const arm of turns) times.push(await timesOf(arm, model, share, index === 0, found, log));
      if (index === 0) {
        if (compared && options.withCpu) times.push(await cpuTimes(model, share, promptTokens));
        found.rivals = rivals?.times() ?? found.rivals;
        logRatios(times, rivals?.times() ?? [], found.copyRate, log);
      }
      found.arms.push(...times);
    }
  } finally {
    rivals?.stop();
    for (const arm of opened) await arm.close();
  }
}

async function openArm(
  model: ShapeModel,
  plan: ArmPlan,
  backend: Backend,
  promptTokens: number,
  log: Log,
): Promise<Arm | null> {
  try {
    return await Arm.open(plan, backend, model.prepared, promptTokens);
  } catch (error) {
    if (!(error instanceof BudgetError)) throw error;
    log(`arm ${model.name} ${plan.name}: refused, ${error.message}`);
    return null;
  }
}

async function timesOf(
  arm: Arm,
  model: ShapeModel,
  share: number,
  first: boolean,
  { failures, rates }: Found,
  log: Log,
): Promise<ArmTime> {
  const { name, weightBytes } = model;
  const time = await armTime(arm, { name, weightBytes, share, rates }, first);
  log(lineOf(time));
  if (arm.plan.name === certifiedName && time.denseBytesPerToken > 0) {
    failures.push(`${time.shape} ${time.arm}: ${time.denseBytesPerToken} dense bytes a token`);
  }
  // Without a host tier rows kept from before save an unplanned share; guesses come on top of what is planned.
  const exact = arm.session.backend.hostTier !== undefined && arm.plan.policy !== 'forecast';
  if (exact && time.bytesPerToken !== time.plannedBytesPerToken) {
    failures.push(
      `${time.shape} ${time.arm}: ${time.bytesPerToken} bytes a token, the plan has ${time.plannedBytesPerToken}`,
    );
  }
  return time;
}

/** Whether dense weights come over the link for every token. */
function slow({ session }: Arm): boolean {
  return session.plan.placement.moved.denseDecodeBytes > 0;
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
  const names = ['denseBytesPerSecond', 'rowBytesPerSecond', 'deviceBytesPerSecond'] as const;
  log(`link: ${names.map((name) => `${name} ${(rates[name] / 1e9).toFixed(1)} GB/s`).join(', ')}`);
  return rates.denseBytesPerSecond / 1e9;
}

/** What predictions are made from, before anything of the model is on the device. */
async function measuredRates(
  backend: Backend,
  { prepared, weightBytes: budgetBytes }: ShapeModel,
  activeShare: number,
  context: number,
  log: Log,
): Promise<MachineRates> {
  const began = Date.now();
  const rates = await measureRates(prepared, backend, { budgetBytes, activeShare, context });
  log(`rates: ${JSON.stringify(rates)} in ${Date.now() - began} ms`);
  return rates;
}

/** The same prompt on the CPU of this host: its digests are what the GPU must give. */
async function cpuTimes(model: ShapeModel, share: number, promptTokens: number): Promise<ArmTime> {
  const plan = { name: 'cpu resident', policy: 'resident', budget: Infinity } as const;
  const backend = await openNative({ threads: 16 });
  const arm = await Arm.open(plan, backend, model.prepared, promptTokens);
  try {
    await arm.episode(8);
    return await armTime(arm, { name: model.name, weightBytes: model.weightBytes, share, rates: null }, true);
  } finally {
    await arm.close();
  }
}

/** Arms of one shape and share against the first of them that has so many tokens; native numerics apart. */
function digestFailures(times: readonly ArmTime[], log: Log): string[] {
  const references = new Map<string, ArmTime>();
  const failures: string[] = [];
  for (const time of times) {
    const { shape, arm, activeShare, digests } = time;
    const key = `${activeShare} ${arm.startsWith('native')}`;
    const first = references.get(key) ?? time;
    references.set(key, first.digests.length >= digests.length ? first : time);
    const wrong = digests.findIndex((digest, index) => digest !== (first.digests[index] ?? digest));
    const name = `${shape} ${arm} at ${(100 * activeShare).toFixed(1)} %`;
    if (wrong < 0) log(`ok   digests of ${name}: ${digests.length} tokens`);
    else failures.push(`${name}: token ${wrong} has another digest than ${first.arm}`);
  }
  return failures;
}
