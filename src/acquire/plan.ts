import { blockInputs } from '../backend/ops.js';
import { BudgetError, UsageError } from '../base/errors.js';
import { defaultLowBit, type LowBitPlan, uniformLowBit, withNeuronRows } from '../checkpoint/low-bit-plan.js';
import type { ModelDescription } from '../checkpoint/model-description.js';
import { type BudgetComponent, listComponents, requireBudget } from '../memory/budget.js';
import type { ActivationProfile } from './activation-profile.js';
import {
  type Arrangement,
  type ArrangeRequest,
  arrange,
  type Choice,
  leastArrangement,
  streams,
} from './arrangement.js';
import { describePlacement } from './describe.js';
import { activityOf, RowExpectation } from './expected-rows.js';
import type { ForecastTiming, Guesser } from './forecast-way.js';
import { expectedBytes } from './moved-bytes.js';
import type { LinkRates, Placement } from './placement.js';
import { policies } from './policies.js';
import { type AcquisitionPolicy, type PolicyName, rowPathOf } from './policy.js';
import { HotRanking, type Retention } from './retain-rows.js';
import { type SurveyedMatrix, surveyModel, type TensorFacts } from './survey.js';

export interface PlacementRequest {
  readonly description: ModelDescription;
  /** Facts of the prepared tensors by id; `PreparedModel.tensor` serves. */
  readonly tensor: (id: string) => TensorFacts;
  readonly policy: PolicyName;
  /** `Infinity` for no limit. */
  readonly budgetBytes: number;
  /** What the run holds beside weights: KV, activations, workspace, logits. */
  readonly fixed: readonly BudgetComponent[];
  /** Rows (tokens) of the largest pass. */
  readonly maxRows: number;
  /** Measured share of active neurons, for the figures alone. */
  readonly activeShare?: number;
  /** Recorded activity: for the figures, where no share is given, and to choose a hot set by. */
  readonly profile?: ActivationProfile;
  /** What policy `retention` keeps; 1,024 rows used last where nothing is said. */
  readonly retain?: Retention;
  /** When policy `forecast` fetches its guesses; early where nothing is said. */
  readonly forecast?: ForecastTiming;
  /** What policy `forecast` guesses from; `residual` needs the tables of a profile. */
  readonly guesser?: Guesser;
  /**
   * Of policy `stream` with a host tier: `strided` keeps second projections on the host as the checkpoint stores them, outputs
   * first, so that a block of neurons is a short run out of every output's row, gathered on the way.
   */
  readonly streamLayout?: StreamLayout;
  /** Low-bit copies of policy `certified`; `defaultLowBit` for all layers where nothing is said. */
  readonly lowBit?: LowBitPlan;
  readonly link?: LinkRates;
  /** False: packet rows are forgotten after their layer, and neuron rows never become resident (a control). */
  readonly keepRows?: boolean;
  /** The backend computes on a device that can read host memory (`Backend.hostTier`). */
  readonly hostTier?: boolean;
}

export const streamLayouts = ['packed', 'strided'] as const;
export type StreamLayout = (typeof streamLayouts)[number];

/** Largest piece worth having: reads of 8 MiB run at the rate of longer ones. */
const largestPieceLimit = 8 * 1024 * 1024;
const smallestPieceLimit = 64 * 1024;
/** A link of PCIe 5 moves so much while the host sees to a piece, which takes it about 40 us. */
const shortestPieceBytes = 2 * 1024 * 1024;
/** Where copies wait for one another in a queue more of them keep the link busy through the host's pauses, at no other price. */
const queuedSlots = [2, 4, 8, 16] as const;

/** Of the published shapes an eighth of a layer, and several tokens' active rows. */
export const defaultRetention: Retention = { kind: 'lru', rowsPerMatrix: 1024 };

/**
 * Chooses what is resident, what is streamed and what comes by rows, inside a budget. Pure: nothing is allocated.
 *
 * @throws BudgetError `budget-too-small`, with every component of the smallest placement and the minimum in its data.
 * @throws UsageError `bad-budget`.
 */
export function planPlacement(request: PlacementRequest): Placement {
  const { budgetBytes, maxRows } = request;
  requireBudget(budgetBytes);
  if (!Number.isSafeInteger(maxRows) || maxRows < 1) {
    throw new RangeError(`Cannot plan passes of ${maxRows} rows: a positive integer is needed`);
  }
  if (request.streamLayout === 'strided') requireStriding(request);
  const keepRows = request.keepRows ?? true;
  const policy = policies[request.policy];
  const mayHoldAll = policy.residence === 'whole-model' || (policy.residence === 'if-all-fits' && keepRows);
  const path = rowPathOf(policy);
  const lowBit = path === 'certified' ? lowBitOf(request) : null;
  const description = lowBit === null ? request.description : withNeuronRows(request.description, lowBit);
  const survey = surveyModel(description, request.tensor, policy, lowBit);
  const retention = path === 'retained' ? (request.retain ?? defaultRetention) : null;
  const fed = survey.matrices.filter(({ treatment }) => treatment === 'packets');
  const ranking = retention?.kind === 'hot' ? new HotRanking(fed, retention.profile) : null;
  const { fixed } = request;
  const hostTier = request.hostTier ?? false;
  const arranging: ArrangeRequest = {
    survey,
    policy,
    fixed,
    maxRows,
    keepRows,
    retention,
    ranking,
    hostTier,
    guesses: path === 'forecast' && request.guesser === 'residual',
  };
  if (arranging.guesses === true) requireGuessTables(request, fed);
  const choices = listChoices(survey.matrices, policy, mayHoldAll, hostTier);
  const smallest = smallestArrangement(arranging, choices);
  if (smallest.totalBytes > budgetBytes) throw tooSmall(request, smallest);
  const activity = activityOf(request.activeShare, request.profile ?? null);
  const expectation = new RowExpectation(path, retention, activity);
  const fitting = choices
    .map((choice) => arrange(arranging, choice, budgetBytes))
    .filter((arrangement) => arrangement !== null);
  const whole = fitting.find(({ choice }) => choice.wholeModel);
  const best = whole ?? chooseArrangement(fitting, arranging, expectation);
  return describePlacement(request, arranging, best, smallest.totalBytes, expectation);
}

function requireStriding({ policy, hostTier }: PlacementRequest): void {
  if (policy !== 'stream') {
    throw new UsageError(
      'option-without-effect',
      `Cannot use --stream-layout strided with policy "${policy}": only policy "stream" has a use for it`,
      { policy },
    );
  }
  if (hostTier === true) return;
  throw new UsageError(
    'option-without-effect',
    'Cannot use --stream-layout strided on this backend: it reads the prepared file, which has no other layout, want --backend cuda',
  );
}

/** What a request has of low-bit copies, or the default ones. */
export function lowBitOf({ description, tensor, lowBit }: PlacementRequest): LowBitPlan {
  return lowBit ?? uniformLowBit(description, (id) => tensor(id).finite, defaultLowBit);
}

function requireGuessTables({ profile }: PlacementRequest, fed: readonly SurveyedMatrix[]): void {
  const known = new Set(profile?.guesser?.tables.map(({ id }) => id));
  const missing = fed.find(({ description }) => !known.has(description.id));
  if (missing === undefined && profile !== undefined) return;
  throw new UsageError(
    'no-guess-tables',
    `Cannot guess rows from the residual: ${profile === undefined ? 'there is no activation profile' : `the activation profile has no table for "${missing!.description.id}"`}, want a --profile made with --learn-guesser`,
  );
}

/** Every combination worth trying; small, because matrices of a model share few sizes. */
function listChoices(
  matrices: readonly SurveyedMatrix[],
  policy: AcquisitionPolicy,
  mayHoldAll: boolean,
  hostTier: boolean,
): Choice[] {
  const whole: Choice = { pieceLimit: 0, stagingSlots: 2, packetRows: 0, wholeModel: true };
  if (policy.residence === 'whole-model') return [whole];
  const choices = mayHoldAll ? [whole] : [];
  for (const packetRows of packetRowChoices(matrices, policy)) {
    choices.push({ pieceLimit: 0, stagingSlots: 2, packetRows, wholeModel: false });
    for (const pieceLimit of new Set(matrices.map(({ smallestPiece }) => smallestPiece))) {
      choices.push({ pieceLimit, stagingSlots: 2, packetRows, wholeModel: false });
    }
    for (let pieceLimit = largestPieceLimit; pieceLimit >= smallestPieceLimit; pieceLimit /= 2) {
      for (const stagingSlots of hostTier ? queuedSlots : [2, 4]) {
        choices.push({ pieceLimit, stagingSlots, packetRows, wholeModel: false });
      }
    }
  }
  return choices;
}

/**
 * From one block of rows to a quarter of a layer, which holds the active set of one token in nearly every layer. Extents
 * come to most of a layer, and a staged packet holds one, so that nothing is cut: there the choices go on to all rows.
 */
function packetRowChoices(matrices: readonly SurveyedMatrix[], policy: AcquisitionPolicy): number[] {
  const neurons = Math.max(0, ...matrices.filter((m) => m.treatment === 'packets').map((m) => m.rows));
  if (neurons === 0) return [0];
  const path = rowPathOf(policy);
  const most = path === 'extents' || path === 'staged' ? neurons : neurons / 4;
  const choices: number[] = [];
  for (let rows = blockInputs; ; rows *= 2) {
    choices.push(rows);
    if (rows >= most) return choices;
  }
}

/** The least that any choice holds. */
function smallestArrangement(request: ArrangeRequest, choices: readonly Choice[]): Arrangement {
  return choices
    .map((choice) => leastArrangement(request, choice))
    .reduce((least, other) => (other.totalBytes < least.totalBytes ? other : least));
}

/**
 * The fewest bytes a token win, where copies wait in a queue with what the host's work on short ones takes. Among choices within
 * a 32nd of that, the largest buffers do: longer reads and fewer rounds are worth more than so few bytes.
 */
function chooseArrangement(
  fitting: readonly Arrangement[],
  request: ArrangeRequest,
  expectation: RowExpectation,
): Arrangement {
  const costs = fitting.map(
    (arrangement) =>
      expectedBytes(request, arrangement, expectation).expectedBytes + shortfall(request, arrangement),
  );
  const least = Math.min(...costs);
  const near = fitting.filter((_, index) => costs[index]! <= least + least / 32);
  return near.reduce((best, other) => (bufferBytes(other) > bufferBytes(best) ? other : best));
}

/** Bytes that the link could have moved while the host works on pieces that are shorter than that work. */
function shortfall({ survey, policy, hostTier }: ArrangeRequest, { resident, staging }: Arrangement): number {
  if (!hostTier || staging === null) return 0;
  const streamed = survey.matrices.filter(
    (matrix) => matrix.treatment !== 'packets' && streams(matrix, resident.has(matrix), policy),
  );
  return streamed.reduce((sum, { bytes }) => {
    const pieces = Math.ceil(bytes / staging.slotBytes);
    return sum + Math.max(0, pieces * shortestPieceBytes - bytes);
  }, 0);
}

function bufferBytes({ staging, arenas }: Arrangement): number {
  const stagingBytes = staging === null ? 0 : staging.slots * staging.slotBytes;
  return stagingBytes + arenas.reduce((sum, arena) => sum + arena.packetRows * arena.rowBytes, 0);
}

function tooSmall(request: PlacementRequest, smallest: Arrangement): BudgetError {
  const { components, totalBytes } = smallest;
  return new BudgetError(
    'budget-too-small',
    `Cannot place the model by policy "${request.policy}" in ${request.budgetBytes} bytes: at least ${totalBytes} bytes are needed (${listComponents(components)})`,
    { policy: request.policy, budgetBytes: request.budgetBytes, minimumBytes: totalBytes, components },
  );
}
