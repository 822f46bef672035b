import type { ActivationProfile } from '../../src/acquire/activation-profile.js';
import type { PlacementRequest } from '../../src/acquire/plan.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import type { SyntheticShape } from '../../src/checkpoint/synthetic-opt.js';
import { ActivationCounter } from '../../src/generate/activation-counter.js';
import type { Session } from '../../src/generate/session.js';
import { type MoveCause, weightMoveCauses } from '../../src/memory/causes.js';
import { differenceOf } from '../../src/memory/ledger.js';
import { median } from './pass-times.js';
import { openPrepared } from './prepared-session.js';
import { type Usage, writeZipf, type ZipfModel } from './zipf-model.js';

const mebibyte = 1024 * 1024;

export interface RetentionOptions {
  readonly shape: SyntheticShape;
  readonly budgetBytes: number;
  readonly promptTokens: number;
  readonly tokens: number;
  readonly rounds: number;
  readonly usages: readonly Usage[];
  /** All arms take part in the first usage; in the others, or else, those that keep rows and their control. */
  readonly everyArm: boolean;
  /** What their names begin with; none for all. The control takes part always. */
  readonly arms: readonly string[];
  readonly open?: () => Promise<Backend>;
}

interface RowsPlan {
  readonly name: string;
  readonly policy: PolicyName;
  readonly budgetBytes: number;
  readonly more?: Partial<PlacementRequest>;
  /** Takes part where usage is swept. */
  readonly swept?: boolean;
}

/** Decode passes of one arm: bytes and rows are those of a token, on average. */
export interface RowsTime {
  readonly usage: Usage;
  readonly arm: string;
  readonly plannedBytes: number;
  readonly msPerToken: number;
  readonly bestMsPerToken: number;
  readonly bytesPerToken: number;
  readonly rows: Partial<Record<MoveCause, number>>;
  readonly held: Record<string, number>;
}

interface Episode {
  readonly stepMs: readonly number[];
  readonly bytes: number;
  readonly rows: Partial<Record<MoveCause, number>>;
  readonly digest: string;
}

/**
 * Ways for rows to come from the host, on a model whose neurons are popular by Zipf's law; arms take turns, each round with a
 * prompt of its own. All arms must agree in every logits digest, and in hits and misses with a model of them.
 */
export async function benchRetention(
  options: RetentionOptions,
  log: (line: string) => void,
): Promise<{ readonly times: readonly RowsTime[]; readonly failures: readonly string[] }> {
  const [first] = options.usages;
  const began = process.hrtime.bigint();
  const elapsed = (): string => `${(Number(process.hrtime.bigint() - began) / 1e9).toFixed(1)} s`;
  const model = writeZipf(options.shape, first!);
  log(`model written: ${elapsed()}`);
  const times: RowsTime[] = [];
  const failures: string[] = [];
  const opened = new Map<RowsPlan, Session>();
  try {
    for (const usage of options.usages) {
      const all = options.everyArm && usage === first;
      const control = await sessionOf(opened, plansFor(options, null)[0]!, model, options);
      if (usage !== first) setUsage([...opened.values()], model.usageTensors(usage));
      const profile = await recordProfile(control, options);
      log(`usage zipf ${usage.exponent}, position share ${usage.positionShare}: ${describeProfile(profile)}`);
      const wanted = ({ name }: RowsPlan, index: number) =>
        index === 0 || options.arms.length === 0 || options.arms.some((start) => name.startsWith(start));
      const plans = plansFor(options, profile)
        .filter(wanted)
        .filter(({ swept }) => all || swept === true);
      const sessions = new Map<RowsPlan, Session>();
      const hot: Session[] = [];
      for (const plan of plans) {
        const known = [...opened].find(([{ name }]) => name === plan.name);
        const session = known?.[1] ?? (await sessionOf(opened, plan, model, options));
        sessions.set(plan, session);
        log(`opened ${plan.name}: ${elapsed()}`);
        if (plan.more?.retain?.kind === 'hot') {
          hot.push(session);
          setUsage([session], model.usageTensors(usage));
        }
      }
      const found = await takeTurns(sessions, options);
      log(`measured: ${elapsed()}`);
      for (const [plan, episodes] of found) {
        const time = timeOf(plan, sessions.get(plan)!, episodes, usage);
        times.push(time);
        const control = times.find((other) => other.arm === 'packets, none kept' && other.usage === usage);
        log(lineOf(time, control ?? time));
        const wrong = episodes.findIndex(
          ({ digest }, round) => digest !== found.get(plans[0]!)![round]!.digest,
        );
        if (wrong >= 0) failures.push(`${plan.name}, round ${wrong}: other digests than ${plans[0]!.name}`);
      }
      for (const session of hot) {
        for (const [plan, known] of opened) if (known === session) opened.delete(plan);
        await session.close();
      }
    }
  } finally {
    for (const session of opened.values()) await session.close();
    model.remove();
  }
  for (const failure of failures) log(`FAIL ${failure}`);
  return { times, failures };
}

function plansFor({ budgetBytes }: RetentionOptions, profile: ActivationProfile | null): RowsPlan[] {
  const limited = { budgetBytes };
  const hot = profile === null ? {} : ({ retain: { kind: 'hot', profile }, profile } as const);
  return [
    { name: 'packets, none kept', policy: 'packets', ...limited, more: { keepRows: false }, swept: true },
    { name: 'resident', policy: 'resident', budgetBytes: Infinity },
    { name: 'resident-sparse', policy: 'resident-sparse', budgetBytes: Infinity },
    { name: 'packets', policy: 'packets', ...limited },
    {
      name: 'lru:1024',
      policy: 'retention',
      ...limited,
      more: { retain: { kind: 'lru', rowsPerMatrix: 1024 } },
      swept: true,
    },
    { name: 'hot:auto', policy: 'retention', ...limited, more: hot, swept: true },
    { name: 'forecast early', policy: 'forecast', ...limited, more: { forecast: 'early' } },
    { name: 'forecast late', policy: 'forecast', ...limited, more: { forecast: 'late' } },
    { name: 'extents', policy: 'extents', ...limited },
    { name: 'staged', policy: 'packets-staged', ...limited },
    { name: 'stream', policy: 'stream', ...limited },
  ];
}

async function sessionOf(
  opened: Map<RowsPlan, Session>,
  plan: RowsPlan,
  model: ZipfModel,
  options: RetentionOptions,
): Promise<Session> {
  const known = [...opened].find(([{ name }]) => name === plan.name);
  if (known !== undefined) return known[1];
  const session = await openArm(plan, model, options);
  opened.set(plan, session);
  return session;
}

async function openArm(
  { policy, budgetBytes, more = {} }: RowsPlan,
  { prepared }: ZipfModel,
  { promptTokens, tokens, open = openCuda }: RetentionOptions,
): Promise<Session> {
  const backend = await open();
  const limits = {
    model: 'opt shape with popular neurons',
    capacity: promptTokens + tokens + 8,
    promptTokens,
  };
  try {
    return await openPrepared(backend, prepared, limits, (surroundings) => ({
      ...surroundings,
      policy,
      budgetBytes,
      ...more,
    }));
  } catch (error) {
    await backend.close();
    throw error;
  }
}

/** Makes neurons as popular from here on, without loading anything again. */
function setUsage(sessions: readonly Session[], tensors: ReadonlyMap<string, Uint8Array>): void {
  for (const { backend, source } of sessions) {
    const resident = source.residentWeights();
    for (const [id, bytes] of tensors) backend.write(resident.get(id)!, bytes);
  }
}

/** From other tokens than the trials use. */
async function recordProfile(
  session: Session,
  { promptTokens }: RetentionOptions,
): Promise<ActivationProfile> {
  const counter = new ActivationCounter(session.plan.prepared.description);
  session.observer = counter.observer;
  const length = Math.min(192, promptTokens);
  const prompt = idsFrom(session, 911, length);
  for await (const _ of session.generate([prompt], { maxNewTokens: 2, ignoreEos: true }));
  session.observer = null;
  return counter.profile(session.plan.prepared.sourceDigest);
}

function describeProfile({ matrices, tokens }: ActivationProfile): string {
  const sum = (of: (matrix: (typeof matrices)[number]) => number) =>
    matrices.reduce((total, matrix) => total + of(matrix), 0);
  const uses = sum(({ counts }) => counts.reduce((total, count) => total + count, 0));
  const share = uses / tokens / sum(({ counts }) => counts.length);
  const repeated = sum(({ repeats }) => repeats) / uses;
  return `${(100 * share).toFixed(2)} % active, ${repeated.toFixed(3)} of them in the token before`;
}

function idsFrom({ vocabSize }: Session, seed: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => (index * 7919 + seed * 104_729 + 11) % (vocabSize - 4));
}

async function takeTurns(
  sessions: ReadonlyMap<RowsPlan, Session>,
  { promptTokens, tokens, rounds }: RetentionOptions,
): Promise<Map<RowsPlan, Episode[]>> {
  const found = new Map<RowsPlan, Episode[]>([...sessions.keys()].map((plan) => [plan, []]));
  for (let round = 0; round < rounds; round += 1) {
    const order = [...sessions];
    if (round % 2 === 1) order.reverse();
    for (const [plan, session] of order) {
      found.get(plan)!.push(await episodeOf(session, idsFrom(session, round, promptTokens), tokens));
    }
  }
  return found;
}

async function episodeOf(session: Session, prompt: readonly number[], tokens: number): Promise<Episode> {
  const generation = session.generate([prompt], { maxNewTokens: tokens, ignoreEos: true });
  let prefilled = session.ledger.totals();
  for await (const { index } of generation) if (index === 0) prefilled = session.ledger.totals();
  const { times, requests } = generation.outcome;
  const moved = differenceOf(session.ledger.totals(), prefilled);
  const passes = times.decodeStepNs.length;
  const rows = Object.entries(moved.movedRows)
    .filter(([cause, count]) => count > 0 && !cause.endsWith('readback'))
    .map(([cause, count]) => [cause, count / passes]);
  return {
    stepMs: times.decodeStepNs.map((ns) => Number(ns) / 1e6),
    bytes: weightMoveCauses.reduce((sum, cause) => sum + moved.moved[cause], 0) / passes,
    rows: Object.fromEntries(rows),
    digest: requests[0]!.logitsDigests.join(' '),
  };
}

function timeOf(plan: RowsPlan, session: Session, episodes: readonly Episode[], usage: Usage): RowsTime {
  const warm = episodes.length > 1 ? episodes.slice(1) : episodes;
  const steps = warm.flatMap(({ stepMs }) => stepMs.slice(2));
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const causes = Object.keys(warm[0]!.rows) as MoveCause[];
  const { heldPeak } = session.ledger.totals();
  return {
    usage,
    arm: plan.name,
    plannedBytes: session.plan.placement.totalBytes,
    msPerToken: median(steps),
    bestMsPerToken: Math.min(...steps),
    bytesPerToken: mean(warm.map(({ bytes }) => bytes)),
    rows: Object.fromEntries(causes.map((cause) => [cause, mean(warm.map(({ rows }) => rows[cause] ?? 0))])),
    held: Object.fromEntries(
      Object.entries(heldPeak).filter(([cause, bytes]) => cause.startsWith('retention') && bytes > 0),
    ),
  };
}

function lineOf(time: RowsTime, control: RowsTime): string {
  const rows = Object.entries(time.rows).map(([cause, count]) => `${cause} ${count.toFixed(0)}`);
  const held = Object.entries(time.held).map(
    ([cause, bytes]) => `${cause} ${(bytes / mebibyte).toFixed(1)} MiB`,
  );
  return `rows ${time.arm.padEnd(18)} ${(time.plannedBytes / mebibyte).toFixed(0)} MiB, ${time.msPerToken.toFixed(3)} ms a token (best ${time.bestMsPerToken.toFixed(3)}), ${(time.bytesPerToken / 1e6).toFixed(2)} MB, ${(time.bytesPerToken / control.bytesPerToken).toFixed(3)} of the bytes and ${(time.msPerToken / control.msPerToken).toFixed(3)} of the time of ${control.arm}; ${[...rows, ...held].join(', ')}`;
}
