import type { ForecastTiming } from '../../src/acquire/forecast-way.js';
import { type PlacementRequest, planPlacement, type StreamLayout } from '../../src/acquire/plan.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import type { GenerationOutcome } from '../../src/generate/outcome.js';
import type { Session } from '../../src/generate/session.js';
import { weightMoveCauses } from '../../src/memory/causes.js';
import { measureOverlap } from './device-timeline.js';
import type { OverlapFigures } from './overlap.js';
import { type Measuring, type PassTimes, passTimes } from './pass-times.js';
import { openPrepared } from './prepared-session.js';
import type { ShapeModel } from './shape-model.js';

const capacity = 640;

/** What an arm is to be. */
export interface ArmPlan {
  readonly name: string;
  readonly policy: PolicyName;
  /** `regime C`: all dense matrices and no whole second projection. */
  readonly budget: number | 'regime C';
  readonly streamLayout?: StreamLayout;
  readonly forecast?: ForecastTiming;
  /** Runs at every share of active neurons that is asked for, not at the usual one alone. */
  readonly sweeps?: boolean;
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

/** An opened session with the prompt that all arms continue. */
export class Arm {
  readonly plan: ArmPlan;
  readonly session: Session;
  readonly openMs: number;
  /** At the share of active neurons that holds now. */
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
    return (this.session.setup.moved.setup + this.session.setup.moved['host-mirror']) / (this.openMs / 1e3);
  }

  /** Makes so many neurons active from here on, without loading anything again. */
  setActiveShare(model: ShapeModel, share: number): void {
    const { backend, source, plan } = this.session;
    for (const { id, width } of plan.prepared.description.vectors) {
      if (!id.endsWith('first.bias')) continue;
      const values = new Float32Array(width).fill(model.biasFor(share));
      backend.write(source.vector(id), new Uint8Array(values.buffer));
    }
    this.episodes.splice(0);
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

  /** How decode passes share the device between copies and kernels; null where nothing is copied beside them, or no GPU is. */
  async overlap(tokens: number): Promise<OverlapFigures | null> {
    const { gpu, session } = this;
    const { moved, forecast } = session.plan.placement;
    const copies = forecast !== null || moved.denseDecodeBytes > 0;
    if (gpu === null || session.backend.info.name !== 'cuda' || !copies) return null;
    return measureOverlap(gpu, async (begin) => {
      const generation = session.generate([this.#prompt], { maxNewTokens: tokens, ignoreEos: true });
      for await (const { index } of generation) if (index === 1) begin();
      return tokens - 2; // passes behind the one that begins with the first token
    });
  }

  /** Rows and bytes of weights that decode passes moved, all those by which the last episode is longer than one of 2 tokens. */
  async movedByDecode(): Promise<{ rows: number; bytes: number; passes: number }> {
    // Prefill moves, too: two lengths differ by decode passes alone.
    const few = await this.run(2);
    const many = this.episodes.at(-1)!;
    const total = ({ outcome: { bytes } }: Episode) => ({
      rows: bytes.movedRows['packet-rows'] + bytes.movedRows['uncertain-rows'],
      bytes: weightMoveCauses.reduce((sum, cause) => sum + bytes.moved[cause], 0),
    });
    const [a, b] = [total(few), total(many)];
    return {
      rows: b.rows - a.rows,
      bytes: b.bytes - a.bytes,
      passes: many.stepMs.length - few.stepMs.length,
    };
  }

  /** Share of neurons that certificates left undecided in decode passes; null where the host does not count them. */
  get uncertainShare(): number | null {
    const { layers } = this.session.source.stats();
    const judged = layers.reduce((sum, { judgedRows }) => sum + judgedRows, 0);
    return judged === 0 ? null : layers.reduce((sum, { uncertainRows }) => sum + uncertainRows, 0) / judged;
  }

  /** A decode pass on the device, whole and by part; null where there is no device. */
  async passTimes(tokens: number): Promise<PassTimes | null> {
    const { gpu } = this;
    return gpu === null ? null : passTimes(gpu, () => this.run(tokens));
  }

  async close(): Promise<void> {
    await this.session.close();
  }
}

async function openArm(
  { policy, budget, streamLayout = 'packed', forecast = 'early' }: ArmPlan,
  backend: Backend,
  prepared: PreparedModel,
  promptTokens: number,
): Promise<Session> {
  const model = `opt shape of ${prepared.description.config.layers} layers`;
  return openPrepared(backend, prepared, { model, capacity, promptTokens }, (surroundings) => {
    const request = { ...surroundings, policy, streamLayout, forecast };
    const budgetBytes = budget === 'regime C' ? leastOfRegimeC(request, prepared) : budget;
    return { ...request, budgetBytes };
  });
}

/** Regime C with nothing to spare: all dense matrices, and room for less than one second projection. */
function leastOfRegimeC(request: Omit<PlacementRequest, 'budgetBytes'>, prepared: PreparedModel): number {
  const dense = prepared.description.matrices
    .filter(({ role }) => role !== 'second')
    .reduce((sum, { id }) => sum + prepared.tensor(id).byteLength, 0);
  const second = prepared.tensor('layers.0.second').byteLength;
  const minimum = planPlacement({ ...request, budgetBytes: Infinity }).minimumBytes;
  return minimum + dense + Math.floor(second / 2);
}
