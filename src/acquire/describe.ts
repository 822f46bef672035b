import { profileDigest } from './activation-profile.js';
import type { Arrangement, ArrangeRequest } from './arrangement.js';
import type { RowExpectation } from './expected-rows.js';
import { expectedBytes } from './moved-bytes.js';
import type {
  LinkRates,
  MovedPerToken,
  PlacedMatrix,
  PlacedTable,
  Placement,
  PlannedRetention,
  Regime,
  WeightPath,
} from './placement.js';
import { placementNotes } from './placement-notes.js';
import type { PlacementRequest } from './plan.js';
import { type AcquisitionPolicy, rowPathOf } from './policy.js';
import { type SurveyedMatrix, tableBytes, tableRowBytes } from './survey.js';
import type { PassKind } from './weight-source.js';

/** Writes an arrangement down as the frozen record that everything else reads. */
export function describePlacement(
  request: PlacementRequest,
  arranging: ArrangeRequest,
  arrangement: Arrangement,
  minimumBytes: number,
  expectation: RowExpectation,
): Placement {
  const { survey, policy } = arranging;
  const { link } = request;
  const moved = expectedBytes(arranging, arrangement, expectation);
  const predictedMsPerToken = link === undefined ? null : linkMilliseconds(moved, link, policy);
  return deepFreeze({
    policy: request.policy,
    exact: policy.quantised === undefined,
    regime: regimeOf(arranging, arrangement),
    gated: survey.matrices.some(({ description, skippable }) => description.role === 'up' && skippable),
    budgetBytes: request.budgetBytes === Infinity ? null : request.budgetBytes,
    maxRows: request.maxRows,
    matrices: survey.matrices.map((matrix) => placeMatrix(matrix, policy, arrangement)),
    tables: placeTables(arranging, arrangement),
    staging: arrangement.staging,
    arenas: arrangement.arenas,
    activeNeurons: arrangement.activeNeurons,
    components: arrangement.components,
    totalBytes: arrangement.totalBytes,
    minimumBytes,
    moved,
    retention: plannedRetention(arranging),
    forecast: rowPathOf(policy) === 'forecast' ? (request.forecast ?? 'early') : null,
    ...(arranging.guesses === true ? { guesser: profileDigest(request.profile!) } : {}),
    ...(request.streamLayout === 'strided' ? { streamLayout: 'strided' } : {}),
    notes: placementNotes(arranging, arrangement),
    predictedMsPerToken,
  } satisfies Placement);
}

/** Extents are read at the rate of long pieces. */
function linkMilliseconds(moved: MovedPerToken, link: LinkRates, policy: AcquisitionPolicy): number {
  const extents = rowPathOf(policy) === 'extents' ? moved.expectedPacketBytes : 0;
  const rows = moved.expectedPacketBytes - extents + moved.embeddingBytes;
  const seconds =
    (moved.denseDecodeBytes + extents) / link.denseBytesPerSecond + rows / link.rowBytesPerSecond;
  return seconds * 1000;
}

function plannedRetention({ retention }: ArrangeRequest): PlannedRetention | null {
  if (retention === null) return null;
  if (retention.kind === 'lru') return retention;
  return { kind: 'hot', profile: profileDigest(retention.profile) };
}

function placeMatrix(
  matrix: SurveyedMatrix,
  policy: AcquisitionPolicy,
  { resident, arenaOf, keptRows }: Arrangement,
): PlacedMatrix {
  const { id, role, layer } = matrix.description;
  const pathIn = (kind: PassKind): WeightPath => {
    if (matrix.quantised !== null) return matrix.quantised;
    if (resident.has(matrix))
      return matrix.skippable && policy.skipsZeros[kind] ? 'resident-sparse' : 'resident';
    if (matrix.treatment !== 'packets') return 'streamed';
    const path = policy.rows[kind];
    return path === 'certified' && matrix.certificate === null ? 'packets' : path;
  };
  return {
    id,
    role,
    layer,
    bytes: matrix.bytes,
    paths: { prefill: pathIn('prefill'), decode: pathIn('decode') },
    denseReason: matrix.denseReason,
    arena: arenaOf.get(matrix) ?? null,
    keptRows: keptRows.get(matrix) ?? 0,
    ...(matrix.certificate === null ? {} : { certificate: matrix.certificate }),
  };
}

function placeTables({ survey }: ArrangeRequest, { tokenPath }: Arrangement): PlacedTable[] {
  const { tokenTable, positionTable } = survey;
  const token: PlacedTable = {
    id: tokenTable.id,
    path: tokenPath,
    bytes: tableBytes(tokenTable),
    rowBytes: tableRowBytes(tokenTable),
  };
  if (positionTable === null) return [token];
  const position: PlacedTable = {
    id: positionTable.id,
    path: 'resident',
    bytes: tableBytes(positionTable),
    rowBytes: tableRowBytes(positionTable),
  };
  return [token, position];
}

/** Regimes go by bytes: which small matrix gave way to a staging slot says little. */
function regimeOf({ survey }: ArrangeRequest, { resident }: Arrangement): Regime {
  const moving = survey.matrices.filter((matrix) => !resident.has(matrix));
  if (moving.length === 0) return 'resident';
  const dense = survey.matrices.filter(
    ({ description, certificate }) =>
      description.role !== 'up' && description.role !== 'second' && certificate === null,
  );
  const bytesOf = (matrices: readonly SurveyedMatrix[]) =>
    matrices.reduce((sum, { bytes }) => sum + bytes, 0);
  const held = bytesOf(dense.filter((matrix) => resident.has(matrix)));
  if (held === bytesOf(dense)) return 'C';
  return held >= bytesOf(dense.filter(({ description }) => attentionRoles.has(description.role))) ? 'B' : 'A';
}

const attentionRoles: ReadonlySet<string> = new Set(['query', 'key', 'value', 'output']);

function deepFreeze<Value>(value: Value): Value {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
