import type { ActivationProfile } from '../acquire/activation-profile.js';
import { choosePolicy, type PolicyChoice } from '../acquire/choose.js';
import { openWeightSource } from '../acquire/open.js';
import type { OpenedWeightSource } from '../acquire/placed-source.js';
import type { LinkRates, Placement } from '../acquire/placement.js';
import { type PlacementRequest, planPlacement } from '../acquire/plan.js';
import { policies } from '../acquire/policies.js';
import { readProfile } from '../acquire/profile-file.js';
import { parseRetain, type Retention } from '../acquire/retain-rows.js';
import type { Backend } from '../backend/backend.js';
import type { OpObserver } from '../backend/pass.js';
import { BudgetError, UsageError } from '../base/errors.js';
import { resolveModel } from '../checkpoint/hub.js';
import type { LowBitModel } from '../checkpoint/low-bit-model.js';
import type { LowBitPlan } from '../checkpoint/low-bit-plan.js';
import { openOrPrepare, type PreparePhase } from '../checkpoint/open-or-prepare.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { openOrQuantise, type QuantisedCopy } from '../checkpoint/quantised-copy.js';
import { openTokenizer, type Tokenizer } from '../checkpoint/tokenizer.js';
import { BudgetedAllocator } from '../memory/budget.js';
import { KvCache, type KvShape, kvBytes } from '../memory/kv-cache.js';
import { Ledger, type LedgerTotals } from '../memory/ledger.js';
import { MoveTrace } from '../memory/trace.js';
import type { Model } from '../model/model.js';
import { createModel } from '../model/open-model.js';
import { closeWorkspace, openWorkspace, planWorkspace, type Workspace } from '../model/workspace.js';
import { claimBoundedStart } from './bounded-start.js';
import { openCertified, planCertificates } from './certified-part.js';
import { type BackendChoice, planOnBackend } from './choose-backend.js';
import type { Engine } from './engine.js';
import { Generation, type GenerationHooks } from './generation.js';
import { measureRates, usualContext } from './measure-rates.js';
import type { GenerateOptions } from './options.js';
import { RecordedPasses } from './recorded-passes.js';
import { type SessionHooks, type SessionOptions, sessionOptions } from './session-options.js';
import { Turn } from './turn.js';
import { whyUncertified } from './why-uncertified.js';

/** What `onProgress` says of the phases of preparing. */
export const prepareLabels: Readonly<Record<PreparePhase, string>> = {
  hash: 'hashing the checkpoint',
  pack: 'preparing weights',
  verify: 'verifying prepared weights',
};

/** What a session is planned from: everything known before a weight is loaded. */
export interface SessionPlan {
  readonly options: SessionOptions;
  readonly directory: string;
  readonly prepared: PreparedModel;
  readonly backend: Backend;
  /** What the placement was planned from; other policies can be planned by it, too. */
  readonly request: PlacementRequest;
  readonly placement: Placement;
  /** Where policy `auto` was asked for: what it came to, and why. */
  readonly choice: PolicyChoice | null;
  /** Where backend `auto` was asked for: what it came to, and why; `options` name the backend itself. */
  readonly backendChoice: BackendChoice | null;
  readonly kvShape: KvShape;
}

/** An opened model: weights placed, cache and workspace allocated, ready to generate. */
export class Session implements Engine {
  readonly plan: SessionPlan;
  readonly model: Model;
  readonly source: OpenedWeightSource;
  readonly kv: KvCache;
  readonly ledger: Ledger;
  /** Null where the checkpoint has none; `tokenizerProblem` says why. */
  readonly tokenizer: Tokenizer | null;
  readonly tokenizerProblem: Error | null;
  /** Bytes moved and held by opening. */
  readonly setup: LedgerTotals;
  readonly openNs: bigint;
  /** Whether the device never held a whole model since the process began; null where there is no device. */
  readonly boundedStart: boolean | null;
  /** Set where the policy computes with quantised weights: then nothing is exact. */
  readonly quantised: QuantisedCopy | null;
  /** Set where the policy certifies: the low-bit copies and the rows that they stand for. */
  readonly lowBit: LowBitModel | null;
  observer: OpObserver | null = null;
  readonly recorded = new RecordedPasses();
  readonly turn = new Turn();
  readonly #workspace: Workspace;
  readonly #allocator: BudgetedAllocator;
  #closing: Promise<void> | null = null;

  constructor(parts: {
    plan: SessionPlan;
    model: Model;
    source: OpenedWeightSource;
    kv: KvCache;
    ledger: Ledger;
    workspace: Workspace;
    allocator: BudgetedAllocator;
    tokenizer: Tokenizer | Error;
    openNs: bigint;
    boundedStart: boolean | null;
    quantised: QuantisedCopy | null;
    lowBit: LowBitModel | null;
  }) {
    this.plan = parts.plan;
    this.model = parts.model;
    this.source = parts.source;
    this.kv = parts.kv;
    this.ledger = parts.ledger;
    this.#workspace = parts.workspace;
    this.#allocator = parts.allocator;
    this.tokenizer = parts.tokenizer instanceof Error ? null : parts.tokenizer;
    this.tokenizerProblem = parts.tokenizer instanceof Error ? parts.tokenizer : null;
    this.setup = parts.ledger.totals();
    this.openNs = parts.openNs;
    this.boundedStart = parts.boundedStart;
    this.quantised = parts.quantised;
    this.lowBit = parts.lowBit;
  }

  get backend(): Backend {
    return this.plan.backend;
  }

  get vocabSize(): number {
    return this.plan.prepared.description.config.vocabSize;
  }

  get eosTokenIds(): readonly number[] {
    return this.plan.prepared.description.config.eosTokenIds;
  }

  get capacity(): number {
    return this.kv.capacity;
  }

  get prefillChunk(): number {
    return this.plan.options.prefillChunk;
  }

  get maxLogitsRows(): number {
    return this.plan.options.logitsRows;
  }

  /** Continues prompts, given as token ids (used as they are) or as text (encoded with special tokens). */
  generate(
    prompts: readonly (string | readonly number[])[],
    options: Partial<GenerateOptions> = {},
    hooks: GenerationHooks = {},
  ): Generation {
    const ids = prompts.map((prompt) => (typeof prompt === 'string' ? this.encode(prompt) : prompt));
    return new Generation(this, ids, options, hooks);
  }

  /** @throws UsageError `empty-prompt`; InputError where the checkpoint has no tokenizer */
  encode(text: string): number[] {
    if (this.tokenizer === null) throw this.tokenizerProblem!;
    if (text.length === 0)
      throw new UsageError('empty-prompt', 'Cannot encode the prompt: it is empty, want text');
    return this.tokenizer.encode(text);
  }

  /** Gives everything back, once a running pass has ended; what generates then ends with an error. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.turn.close();
    try {
      await this.source.close();
      closeWorkspace(this.#allocator, this.#workspace);
      this.kv.close();
      for (const { label } of this.backend.overheads ?? []) this.#allocator.unreserve(label);
    } finally {
      await this.quantised?.close();
      await this.lowBit?.close();
      await closePlan(this.plan);
    }
  }
}

/**
 * Plans a session: finds the checkpoint, prepares it where that was not done, opens the backend and places every byte.
 * Nothing is allocated. The caller closes the plan, or opens it and closes the session.
 */
export async function planSession(
  given: Partial<SessionOptions> & { model: string },
  hooks: SessionHooks = {},
): Promise<SessionPlan> {
  const options = sessionOptions(given);
  const { directory } = await resolveModel(options.model, {
    revision: options.revision ?? undefined,
    signal: hooks.signal,
    onProgress: ({ file, doneBytes, totalBytes }) =>
      hooks.onProgress?.(`downloading ${file}`, doneBytes, totalBytes),
  });
  const { prepared, notes } = await openOrPrepare(directory, {
    directory: options.prepared ?? undefined,
    signal: hooks.signal,
    onProgress: (done, total, phase) => hooks.onProgress?.(prepareLabels[phase], done, total),
    onWait: ({ pid }) => hooks.onNote?.(`waiting for process ${pid}, which prepares the same checkpoint`),
  });
  try {
    for (const note of notes) hooks.onNote?.(note);
    const profile = options.profile === null ? null : await readProfile(options.profile, prepared);
    return await planOnBackend(options, hooks.onNote, async (backend, backendChoice, onNote) => {
      const link = await hooks.measureLink?.(prepared, backend);
      const lowBit = await planCertificates(options, prepared, backend);
      const named =
        backendChoice === null ? options : Object.freeze({ ...options, backend: backendChoice.backend });
      const planned = await place(named, directory, prepared, backend, { link, profile, lowBit }, onNote);
      return { ...planned, backendChoice };
    });
  } catch (error) {
    await prepared.close();
    throw error;
  }
}

async function place(
  options: SessionOptions,
  directory: string,
  prepared: PreparedModel,
  backend: Backend,
  known: {
    readonly link: LinkRates | undefined;
    readonly profile: ActivationProfile | null;
    readonly lowBit: LowBitPlan;
  },
  onNote: SessionHooks['onNote'],
): Promise<Omit<SessionPlan, 'backendChoice'>> {
  const { link, profile, lowBit } = known;
  const retain = retentionOf(options, profile);
  const { description } = prepared;
  const { config } = description;
  const capacity = contextPositions(options, config.maxPositions);
  const kvShape: KvShape = {
    layers: config.layers,
    slots: options.slots,
    kvHeads: config.kvHeads,
    headDim: config.headDim,
    capacity,
    type: options.kv,
  };
  const workspace = planWorkspace(description, {
    maxRows: Math.max(options.prefillChunk, options.slots),
    maxLogitsRows: options.logitsRows,
    capacity,
    parallelism: backend.parallelism,
  });
  const asked: PlacementRequest = {
    description,
    tensor: (id) => prepared.tensor(id),
    policy: options.policy === 'auto' ? 'phase' : options.policy,
    budgetBytes: options.budgetBytes,
    fixed: [
      ...(backend.overheads ?? []),
      { label: 'kv cache', cause: 'kv', bytes: kvBytes(kvShape) },
      ...workspace.requests.map(({ label, cause, byteLength }) => ({ label, cause, bytes: byteLength })),
    ],
    maxRows: workspace.limits.maxRows,
    hostTier: backend.hostTier !== undefined,
    forecast: options.forecast,
    guesser: options.guesser,
    streamLayout: options.streamLayout,
    ...(retain === null ? {} : { retain }),
    ...(profile === null ? {} : { profile }),
    ...(link === undefined ? {} : { link }),
    lowBit,
  };
  let [request, choice]: [PlacementRequest, PolicyChoice | null] = [asked, null];
  if (options.policy === 'auto') {
    ({ request, choice } = await choosePolicy(
      asked,
      ({ moved: { activeShare } }) =>
        measureRates(prepared, backend, {
          budgetBytes: options.budgetBytes,
          activeShare,
          kvType: options.kv,
          context: Math.min(usualContext, capacity >> 1),
        }),
      await whyUncertified(options, prepared, lowBit),
    ));
    onNote?.(`policy "${choice.policy}" was picked: ${choice.reason}`);
  }
  const placement = planPlacement(request);
  if (placement.totalBytes > backend.addressableBytes) {
    throw new BudgetError(
      'beyond-addressable',
      `Cannot hold ${placement.totalBytes} bytes with kernels "${backend.info.kernels}": they address at most ${backend.addressableBytes} bytes; give a smaller --budget`,
      { plannedBytes: placement.totalBytes, addressableBytes: backend.addressableBytes },
    );
  }
  return { options, directory, prepared, backend, request, placement, choice, kvShape };
}

function retentionOf({ retain }: SessionOptions, profile: ActivationProfile | null): Retention | null {
  const parsed = retain === null ? null : parseRetain(retain);
  if (parsed === null || parsed.kind === 'lru') return parsed;
  return profile === null ? null : { kind: 'hot', profile };
}

function contextPositions(options: SessionOptions, maxPositions: number): number {
  const capacity = options.contextPositions ?? maxPositions;
  if (capacity <= maxPositions) return capacity;
  if (options.clampContext) return maxPositions;
  throw new UsageError(
    'context-too-long',
    `Cannot hold a context of ${capacity} positions: the model knows ${maxPositions}`,
    { contextPositions: capacity, maxPositions },
  );
}

/** Opens a session from its plan: allocates, loads what is resident, puts the model together. */
export async function openSession(plan: SessionPlan, hooks: SessionHooks = {}): Promise<Session> {
  const began = process.hrtime.bigint();
  const { options, prepared, backend, placement, kvShape } = plan;
  const trace = hooks.onMove === undefined ? null : new MoveTrace(hooks.onMove);
  const ledger = new Ledger(trace?.record ?? null);
  const allocator = new BudgetedAllocator(backend, options.budgetBytes, ledger);
  let quantised: QuantisedCopy | null = null;
  let lowBit: LowBitModel | null = null;
  try {
    for (const overhead of backend.overheads ?? []) allocator.reserve(overhead);
    backend.deviceWatch?.start(options.budgetBytes);
    const boundedStart = claimBoundedStart(plan);
    const workspacePlan = planWorkspace(prepared.description, {
      maxRows: placement.maxRows,
      maxLogitsRows: options.logitsRows,
      capacity: kvShape.capacity,
      parallelism: backend.parallelism,
    });
    const workspace = openWorkspace(allocator, workspacePlan);
    const kv = new KvCache(allocator, kvShape);
    quantised = await openQuantised(plan, hooks);
    lowBit = await openCertified(prepared, plan.request, hooks);
    const source = await openWeightSource({
      placement,
      backend,
      prepared,
      ledger,
      ...(plan.request.profile === undefined ? {} : { profile: plan.request.profile }),
      ...(quantised === null ? {} : { quantised }),
      ...(lowBit === null ? {} : { lowBit }),
      hostBudgetBytes: options.hostBudgetBytes,
      onProgress: (done, total) => hooks.onProgress?.('loading weights', done, total),
      ...(hooks.signal === undefined ? {} : { signal: hooks.signal }),
    });
    const model = createModel(prepared.description, source, workspace, kv, backend);
    const tokenizer = await openTokenizer(plan.directory).catch((error: Error) => error);
    const openNs = process.hrtime.bigint() - began;
    return new Session({
      plan,
      model,
      source,
      kv,
      ledger,
      workspace,
      allocator,
      tokenizer,
      openNs,
      boundedStart,
      quantised,
      lowBit,
    });
  } catch (error) {
    await quantised?.close();
    await lowBit?.close();
    await closePlan(plan); // closing the backend frees all that was allocated
    throw error;
  }
}

/** The quantised matrices of a policy that computes with them, made where that was not done. */
async function openQuantised(
  { prepared, placement }: SessionPlan,
  hooks: SessionHooks,
): Promise<QuantisedCopy | null> {
  const type = policies[placement.policy].quantised;
  if (type === undefined) return null;
  return openOrQuantise(prepared, type, {
    signal: hooks.signal,
    onProgress: (done, total) => hooks.onProgress?.(`quantising weights to ${type}`, done, total),
    onWait: ({ pid }) => hooks.onNote?.(`waiting for process ${pid}, which quantises the same weights`),
  });
}

/** Plans and opens in one call. */
export async function openModel(
  given: Partial<SessionOptions> & { model: string },
  hooks: SessionHooks = {},
): Promise<Session> {
  return openSession(await planSession(given, hooks), hooks);
}

/** Gives back what planning opened. Idempotent. */
export async function closePlan(plan: SessionPlan): Promise<void> {
  await plan.backend.close();
  await plan.prepared.close();
}
