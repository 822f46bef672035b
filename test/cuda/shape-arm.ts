import { planPlacement, type StreamLayout } from '../../src/acquire/plan.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import type { GenerationOutcome } from '../../src/generate/outcome.js';
import { openSession, type Session } from '../../src/generate/session.js';
import { sessionOptions } from '../../src/generate/session-options.js';
import { weightMoveCauses } from '../../src/memory/causes.js';
import { kvBytes } from '../../src/memory/kv-cache.js';
import { planWorkspace } from '../../src/model/workspace.js';

const capacity = 640;

/** What an arm is to be. */
export interface ArmPlan {
  readonly name: string;
  readonly policy: PolicyName;
  /** `regime C`: all dense matrices and no whole second projection. */
  readonly budget: number | 'regime C';
  readonly streamLayout?: StreamLayout;
}

/** Milliseconds on the device of the ops of one decode pass, each part by itself; null where it cannot be told. */
export interface PartTimes {
  readonly attention: number;
  readonly projections: number;
  readonly rows: number;
  readonly rest: number;
}

/** One continuation of the prompt. */
export interface Episode {
  readonly firstTokenMs: number;
  readonly totalMs: number;
  readonly prefillMs: number;
  readonly stepMs: readonly number[];
  readonly digests: readonly string[];
  readonly outcome: GenerationOutcome;
}

/** A GPU as the benchmark uses it beyond the interface of backends. */
interface Measuring extends Backend {
  measure(enqueue: () => Promise<unknown>): Promise<number>;
  readonly usage: { readonly pinnedBytes: number; readonly devicePeakBytes: number };
}

/** An opened session with the prompt that all arms continue. */
export class Arm {
  readonly plan: ArmPlan;
  readonly session: Session;
  readonly openMs: number;
  readonly episodes: Episode[] = [];
  readonly #prompt: readonly number[];

  private constructor(plan: ArmPlan, session: Session, promptTokens: number) {
    this.plan = plan;
    this.session = session;
    this.openMs = Number(session.openNs) / 1e6;
    const most = Math.min(50_000, session.vocabSize);
    this.#prompt = Array.from({ length: promptTokens }, (_, index) => (index * 7919 + 11) % most);
  }

  /** Throws as `planPlacement` and `openSession`; the backend is closed then. */
  static async open(
    plan: ArmPlan,
    backend: Backend,
    prepared: PreparedModel,
    promptTokens: number,
  ): Promise<Arm> {
    try {
      return new Arm(plan, await openArm(plan, backend, prepared, promptTokens), promptTokens);
    } catch (error) {
      await backend.close();
      throw error;
    }
  }

  get gpu(): Measuring | null {
    return 'measure' in this.session.backend ? (this.session.backend as Measuring) : null;
  }

  /** Bytes a second that loading brought to the device and to pinned memory. */
  get loadRate(): number {
    return this.session.setup.moved.setup / (this.openMs / 1e3);
  }

  /** An episode that counts. */
  async episode(tokens: number): Promise<Episode> {
    const episode = await this.run(tokens);
    this.episodes.push(episode);
    return episode;
  }

  async run(tokens: number): Promise<Episode> {
    const generation = this.session.generate([this.#prompt], { maxNewTokens: tokens, ignoreEos: true });
    for await (const _ of generation);
    const { outcome } = generation;
    const { times } = outcome;
    return {
      firstTokenMs: Number(times.timeToFirstTokenNs ?? 0n) / 1e6,
      totalMs: Number(times.totalNs) / 1e6,
      prefillMs: Number(times.prefillNs) / 1e6,
      stepMs: times.decodeStepNs.map((ns) => Number(ns) / 1e6),
      digests: outcome.requests[0]!.logitsDigests,
      outcome,
    };
  }

  /** Rows and bytes of weights that a decode pass moved, on average over the last episode. */
  async movedPerToken(): Promise<{ rows: number; bytes: number }> {
    // Prefill moves, too: two lengths differ by decode passes alone.
    const few = await this.run(2);
    const many = await this.run(10);
    const total = ({ outcome: { bytes } }: Episode) => ({
      rows: bytes.movedRows['packet-rows'] + bytes.movedRows['uncertain-rows'],
      bytes: weightMoveCauses.reduce((sum, cause) => sum + bytes.moved[cause], 0),
    });
    const [a, b] = [total(few), total(many)];
    return { rows: (b.rows - a.rows) / 8, bytes: (b.bytes - a.bytes) / 8 };
  }

  /** Share of neurons that certificates left undecided in decode passes; null where the host does not count them. */
  get uncertainShare(): number | null {
    const { layers } = this.session.source.stats();
    const judged = layers.reduce((sum, { judgedRows }) => sum + judgedRows, 0);
    return judged === 0 ? null : layers.reduce((sum, { uncertainRows }) => sum + uncertainRows, 0) / judged;
  }

  /** Median time on the device of decode passes that are one submission, by events around each. */
  async deviceMs(): Promise<{ readonly ms: number; readonly ops: readonly PlacedOp[] } | null> {
    const gpu = this.gpu;
    if (gpu === null) return null;
    const submit = gpu.submit;
    const each: number[] = [];
    let last: readonly PlacedOp[] | null = null;
    gpu.submit = async (ops) => {
      if (!Object.isFrozen(ops)) return submit.call(gpu, ops);
      last = ops;
      each.push(await gpu.measure(() => submit.call(gpu, ops)));
    };
    try {
      await this.run(12);
    } finally {
      gpu.submit = submit;
    }
    return last === null ? null : { ms: median(each.slice(2)), ops: last };
  }

  /** Runs the ops of a decode pass part by part; what they compute means nothing then, the times do. */
  async partTimes(ops: readonly PlacedOp[]): Promise<PartTimes | null> {
    const gpu = this.gpu;
    if (gpu === null) return null;
    const timeOf = async (part: keyof PartTimes): Promise<number> => {
      const list = Object.freeze(ops.filter((placed) => partOf(placed) === part));
      if (list.length === 0) return 0;
      const times: number[] = [];
      for (let repeat = 0; repeat < 9; repeat += 1) times.push(await gpu.measure(() => gpu.submit(list)));
      return median(times.slice(3));
    };
    // Rows first: the activation that they follow shares its bytes with what the others write.
    const rows = await timeOf('rows');
    const attention = await timeOf('attention');
    return { attention, projections: await timeOf('projections'), rows, rest: await timeOf('rest') };
  }

  async close(): Promise<void> {
    await this.session.close();
  }
}

/** `rows`: second projections, dense or from active rows. Norms and stores belong to the products they are part of. */
function partOf({ label, op }: PlacedOp): keyof PartTimes {
  if (op.kind === 'attention') return 'attention';
  if (/^layers\.\d+\.second/.test(label)) return 'rows';
  return label.startsWith('layers.') ? 'projections' : 'rest';
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return Number.NaN;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

async function openArm(
  { policy, budget, streamLayout = 'packed' }: ArmPlan,
  backend: Backend,
  prepared: PreparedModel,
  promptTokens: number,
): Promise<Session> {
  const { description } = prepared;
  const { config } = description;
  const kvShape = {
    layers: config.layers,
    slots: 1,
    kvHeads: config.kvHeads,
    headDim: config.headDim,
    capacity,
    type: 'f16',
  } as const;
  const workspace = planWorkspace(description, {
    maxRows: promptTokens,
    maxLogitsRows: 1,
    capacity,
    parallelism: backend.parallelism,
  });
  const request = {
    description,
    tensor: (id: string) => prepared.tensor(id),
    policy,
    streamLayout,
    fixed: [
      ...(backend.overheads ?? []),
      { label: 'kv cache', cause: 'kv', bytes: kvBytes(kvShape) },
      ...workspace.requests.map(({ label, cause, byteLength }) => ({ label, cause, bytes: byteLength })),
    ] as const,
    maxRows: promptTokens,
    hostTier: backend.hostTier !== undefined,
  };
  const budgetBytes = budget === 'regime C' ? leastOfRegimeC(request, prepared) : budget;
  const placement = planPlacement({ ...request, budgetBytes });
  const options = sessionOptions({
    model: `opt shape of ${config.layers} layers`,
    policy,
    streamLayout,
    budgetBytes,
    contextPositions: capacity,
    prefillChunk: promptTokens,
  });
  return openSession({
    options,
    directory: prepared.directory,
    prepared,
    choice: null,
    backend,
    placement,
    request: { ...request, budgetBytes },
    kvShape,
  } as Parameters<typeof openSession>[0]);
}

/** Regime C with nothing to spare: all dense matrices, and room for less than one second projection. */
function leastOfRegimeC(
  request: Omit<Parameters<typeof planPlacement>[0], 'budgetBytes'>,
  prepared: PreparedModel,
): number {
  const dense = prepared.description.matrices
    .filter(({ role }) => role !== 'second')
    .reduce((sum, { id }) => sum + prepared.tensor(id).byteLength, 0);
  const second = prepared.tensor('layers.0.second').byteLength;
  const minimum = planPlacement({ ...request, budgetBytes: Infinity }).minimumBytes;
  return minimum + dense + Math.floor(second / 2);
}
