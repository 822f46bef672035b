import { roundedInputLayout } from '../checkpoint/low-bit-layout.js';
import { type BudgetComponent, componentBytes } from '../memory/budget.js';
import { guessTableBytes } from './guess-table.js';
import { hotIndexBytes } from './hot-rows.js';
import { largestPieceBytes } from './pieces.js';
import type { RowArena, StagingPlan, TablePath } from './placement.js';
import { type AcquisitionPolicy, directPaths, type RowPath, rowPathOf } from './policy.js';
import { type HotRanking, lruShares, type Retention } from './retain-rows.js';
import { keptIndexBytes, planArenas, rowComponents } from './row-arenas.js';
import { type Survey, type SurveyedMatrix, tableBytes, tableRowBytes } from './survey.js';

/** The free choices of a placement; the planner tries several. */
export interface Choice {
  /** Largest piece; 0 for no staging: then everything dense is resident. */
  readonly pieceLimit: number;
  readonly stagingSlots: number;
  /** Packet rows of each arena, at most the widest layer's neurons. */
  readonly packetRows: number;
  /** Neuron rows are loaded ahead like all other weights. */
  readonly wholeModel: boolean;
}

/** What a choice comes to inside a budget. */
export interface Arrangement {
  readonly choice: Choice;
  readonly resident: ReadonlySet<SurveyedMatrix>;
  readonly staging: StagingPlan | null;
  readonly arenas: readonly RowArena[];
  readonly arenaOf: ReadonlyMap<SurveyedMatrix, number>;
  readonly keptRows: ReadonlyMap<SurveyedMatrix, number>;
  readonly tokenPath: TablePath;
  readonly activeNeurons: number;
  readonly components: readonly BudgetComponent[];
  readonly totalBytes: number;
}

export interface ArrangeRequest {
  readonly survey: Survey;
  readonly policy: AcquisitionPolicy;
  readonly fixed: readonly BudgetComponent[];
  readonly maxRows: number;
  readonly keepRows: boolean;
  /** Rows are guessed by tables of a profile. */
  readonly guesses?: boolean;
  /** Set where the row path is `retained`. */
  readonly retention: Retention | null;
  /** Set where the retention is a hot set. */
  readonly ranking: HotRanking | null;
  /** What is not resident lies in host memory that ops can read; see `Backend.hostTier`. */
  readonly hostTier: boolean;
}

/** What must be held under a choice; everything that may move does. The total is infinite where that cannot be. */
export function leastArrangement(request: ArrangeRequest, choice: Choice): Arrangement {
  const held = request.survey.matrices.filter((matrix) => isHeldWhole(matrix, choice));
  return build(request, choice, new Set(held), lruOf(request), null);
}

/**
 * Fills a budget by one choice: first what must be held, then dense matrices by rank as they fit, layers in scattered turns,
 * then kept rows, then the token table. Null when the choice does not fit.
 */
export function arrange(request: ArrangeRequest, choice: Choice, budgetBytes: number): Arrangement | null {
  const { survey } = request;
  let current = leastArrangement(request, choice);
  const resident = new Set(current.resident);
  // Rows that ops read straight from the host have no slots to be kept in: spare bytes hold whole matrices instead.
  const path = rowPathOf(request.policy);
  const holdsRows =
    request.keepRows && readsRowsDirectly(request) && request.retention === null && path !== 'forecast';
  const optional = survey.matrices.filter(
    (matrix) =>
      !resident.has(matrix) &&
      (matrix.treatment === 'dense' || (holdsRows && matrix.treatment === 'packets')),
  );
  if (current.totalBytes === Infinity || current.totalBytes > budgetBytes) return null;
  // Stable: matrices of a layer stay together.
  optional.sort((a, b) => a.rank - b.rank || turnOf(a.description.layer) - turnOf(b.description.layer));
  let room = budgetBytes - current.totalBytes;
  for (const matrix of optional) {
    const bytes =
      matrix.bytes - (matrix.description.role === 'head' ? tokenRowBytesSaved(request, current) : 0);
    if (bytes > room) continue;
    resident.add(matrix);
    room -= bytes;
  }
  current = build(request, choice, resident, lruOf(request), null);
  const kept = keptOf(request, choice, budgetBytes - current.totalBytes);
  current = build(request, choice, resident, kept, null);
  const withTable = build(request, choice, resident, kept, 'resident');
  return current.tokenPath === 'rows' && withTable.totalBytes <= budgetBytes ? withTable : current;
}

/**
 * A layer's turn in filling a rank: its number's bits backwards (van der Corput's sequence), so that layers held and layers
 * streamed alternate wherever the budget ends. A stream then reads ahead while held layers compute, all through the pass.
 */
function turnOf(layer: number | null): number {
  let turn = 0;
  for (let rest = layer ?? 0, unit = 0.5; rest > 0; rest = Math.floor(rest / 2), unit /= 2)
    turn += (rest % 2) * unit;
  return turn;
}

/** Whether passes of few rows leave packet rows where they are, and read them from there. */
export function readsRowsDirectly({ policy, hostTier, guesses }: ArrangeRequest): boolean {
  const path = rowPathOf(policy);
  return hostTier && path !== null && directPaths.has(path) && guesses !== true;
}

/** Room for the rounded input of any matrix with a low-bit copy. */
export function roundedInputBytes(matrices: readonly SurveyedMatrix[], maxRows: number): number {
  const sizes = matrices.map(
    ({ description, certificate }) =>
      roundedInputLayout(maxRows, description.inputs, certificate?.directions ?? 0).byteLength,
  );
  return Math.max(0, ...sizes);
}

/**
 * Bytes of an active set, its count and its number, for each matrix whose rows are read directly; of the count of those that
 * have places, where rows are retained or guessed; and of how many were guessed.
 */
export function directSetBytes(neurons: number, path: RowPath | null): number {
  return 4 * (1 + neurons) + (path === 'forecast' ? 16 : path === 'retained' ? 12 : 8);
}

/** Bytes of an index of guessed rows for each room. */
export function guessIndexBytes(neurons: number, arenas: readonly RowArena[]): number {
  return arenas.reduce((sum, { guessRooms }) => sum + guessRooms, 0) * 4 * neurons;
}

/** The places of an LRU are not for the budget to choose. */
function lruOf({ survey, retention }: ArrangeRequest): ReadonlyMap<SurveyedMatrix, number> {
  return retention?.kind === 'lru' ? lruShares(fedMatrices(survey), retention.rowsPerMatrix) : new Map();
}

function keptOf(
  request: ArrangeRequest,
  choice: Choice,
  spareBytes: number,
): ReadonlyMap<SurveyedMatrix, number> {
  const { survey, policy, keepRows, ranking } = request;
  switch (rowPathOf(policy)) {
    case 'packets':
    case 'certified':
      return keepRows && !readsRowsDirectly(request)
        ? shareOut(survey, choice, policy, spareBytes)
        : new Map();
    case 'retained': {
      if (ranking === null) return lruOf(request);
      const index = fedMatrices(survey).reduce((sum, { rows }) => sum + hotIndexBytes(rows), 0);
      return ranking.shares(spareBytes - index);
    }
    default:
      return new Map();
  }
}

function fedMatrices(survey: Survey): SurveyedMatrix[] {
  return survey.matrices.filter(({ treatment }) => treatment === 'packets');
}

/** A resident head that holds the token table makes the buffer for its rows needless. */
function tokenRowBytesSaved({ survey, maxRows }: ArrangeRequest, current: Arrangement): number {
  if (!survey.tokenTableInHead || current.tokenPath !== 'rows') return 0;
  return tokenRowsBytes(survey, maxRows);
}

function tokenRowsBytes(survey: Survey, maxRows: number): number {
  return Math.min(maxRows, survey.tokenTable.rows) * tableRowBytes(survey.tokenTable);
}

function isHeldWhole(matrix: SurveyedMatrix, choice: Choice): boolean {
  if (choice.wholeModel) return true;
  return matrix.treatment === 'dense' && matrix.smallestPiece > choice.pieceLimit;
}

/** True where a matrix is streamed in some kind of pass. */
export function streams(matrix: SurveyedMatrix, resident: boolean, policy: AcquisitionPolicy): boolean {
  if (resident) return false;
  if (matrix.treatment !== 'packets') return true;
  return policy.rows.prefill === 'streamed' || policy.rows.decode === 'streamed';
}

function build(
  request: ArrangeRequest,
  choice: Choice,
  resident: ReadonlySet<SurveyedMatrix>,
  keptRows: ReadonlyMap<SurveyedMatrix, number>,
  tokenChoice: 'resident' | null,
): Arrangement {
  const { survey, policy, fixed, maxRows, retention } = request;
  const path = rowPathOf(policy);
  const components: BudgetComponent[] = [...fixed];
  const add = (label: string, cause: BudgetComponent['cause'], bytes: number) => {
    if (bytes > 0) components.push({ label, cause, bytes });
  };
  add('vectors', 'dense-weights', survey.vectorBytes);
  if (survey.positionTable !== null) {
    add('position table', 'dense-weights', tableBytes(survey.positionTable));
  }
  const tokenPath = pathOfTokenTable(survey, resident, choice, tokenChoice);
  if (tokenPath === 'resident') add('token table', 'dense-weights', tableBytes(survey.tokenTable));
  if (tokenPath === 'rows') add('token rows', 'staging', tokenRowsBytes(survey, maxRows));
  add('table ids', 'indices', (survey.positionTable === null ? 1 : 2) * maxRows * 4);
  for (const [label, roles] of residentGroups) {
    const group = [...resident].filter((matrix) => roles.has(matrix.description.role));
    add(
      label,
      'dense-weights',
      group.reduce((sum, { bytes }) => sum + bytes, 0),
    );
  }
  const copies = survey.matrices.filter(({ certificate }) => certificate !== null);
  add(
    'low-bit copies',
    'low-bit-weights',
    copies.reduce((sum, { certificate }) => sum + certificate!.bytes, 0),
  );
  add('rounded input', 'workspace', roundedInputBytes(copies, maxRows));
  const streamed = survey.matrices.filter((matrix) => streams(matrix, resident.has(matrix), policy));
  const staging = planStaging(streamed, choice);
  if (staging !== null) add('staging', 'staging', staging.slots * staging.slotBytes);
  const fed = survey.matrices.filter((matrix) => matrix.treatment === 'packets' && !resident.has(matrix));
  const { arenas, arenaOf } = planArenas(fed, policy, choice, keptRows);
  const tables = fed.reduce((sum, { rows }) => sum + guessTableBytes(rows, 0), 0);
  if (request.guesses === true && fed.length > 0) {
    add('guess tables', 'indices', tables + guessTableBytes(0, survey.hiddenSize));
  }
  for (const { label, cause, bytes } of rowComponents(fed, arenas, keptRows, policy, retention)) {
    add(label, cause, bytes);
  }
  const skipping = [...resident].filter(
    ({ skippable }) => skippable && (policy.skipsZeros.prefill || policy.skipsZeros.decode),
  );
  const activeNeurons = Math.max(0, ...[...fed, ...skipping].map((matrix) => matrix.rows));
  add('active set', 'indices', activeNeurons === 0 ? 0 : 4 * (1 + activeNeurons));
  if (readsRowsDirectly(request)) {
    add(
      'active sets of rows on the host',
      'indices',
      fed.length * directSetBytes(activeNeurons, path) + guessIndexBytes(activeNeurons, arenas),
    );
  }
  add('row slots', 'indices', fed.length === 0 || path === 'staged' ? 0 : 4 * activeNeurons);
  return {
    choice,
    resident,
    staging,
    arenas,
    arenaOf,
    keptRows,
    tokenPath,
    activeNeurons,
    components,
    totalBytes: componentBytes(components),
  };
}

const residentGroups: readonly (readonly [string, ReadonlySet<string>])[] = [
  ['resident attention projections', new Set(['query', 'key', 'value', 'output'])],
  ['resident embedding projections', new Set(['project-in', 'project-out'])],
  ['resident head', new Set(['head'])],
  ['resident first projections', new Set(['first', 'gate'])],
  ['resident neuron rows', new Set(['up', 'second'])],
];

function pathOfTokenTable(
  survey: Survey,
  resident: ReadonlySet<SurveyedMatrix>,
  choice: Choice,
  wanted: 'resident' | null,
): TablePath {
  const headIsResident = [...resident].some(({ description }) => description.role === 'head');
  if (survey.tokenTableInHead && headIsResident) return 'head';
  return wanted ?? (choice.wholeModel ? 'resident' : 'rows');
}

function planStaging(streamed: readonly SurveyedMatrix[], choice: Choice): StagingPlan | null {
  if (streamed.length === 0) return null;
  // A matrix that the limit cannot cut is never streamed; infinity makes a choice void that would have to.
  const sizes = streamed.map(({ description }) => largestPieceBytes(description, choice.pieceLimit));
  return { slots: choice.stagingSlots, slotBytes: Math.max(...sizes) };
}

/** Divides spare bytes into kept rows: each matrix the same share of its rows, what remains in forward order. */
function shareOut(
  survey: Survey,
  choice: Choice,
  policy: AcquisitionPolicy,
  spareBytes: number,
): Map<SurveyedMatrix, number> {
  const kept = new Map<SurveyedMatrix, number>();
  const fed = survey.matrices.filter(({ treatment }) => treatment === 'packets' && !choice.wholeModel);
  const total = fed.reduce((sum, { bytes }) => sum + bytes, 0);
  let spare = spareBytes - keptIndexBytes(fed);
  if (fed.length === 0 || spare <= 0 || policy.residence === 'whole-model') return kept;
  const shared = Math.min(spare, total);
  for (const matrix of fed) {
    const rows = Number((BigInt(matrix.rows) * BigInt(shared)) / BigInt(total));
    kept.set(matrix, rows);
    spare -= rows * matrix.rowBytes;
  }
  for (const matrix of fed) {
    const rows = kept.get(matrix)!;
    if (rows === matrix.rows || spare < matrix.rowBytes) continue;
    kept.set(matrix, rows + 1);
    spare -= matrix.rowBytes;
  }
  return [...kept.values()].some((rows) => rows > 0) ? kept : new Map();
}
