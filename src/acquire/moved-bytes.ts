import { type Arrangement, type ArrangeRequest, streams } from './arrangement.js';
import type { RowExpectation } from './expected-rows.js';
import type { MovedPerToken } from './placement.js';
import type { AcquisitionPolicy } from './policy.js';
import { type SurveyedMatrix, tableRowBytes } from './survey.js';
import type { PassKind } from './weight-source.js';

/** Bytes that an arrangement leaves to be moved a token. */
export function expectedBytes(
  { survey, policy }: ArrangeRequest,
  { resident, keptRows, tokenPath }: Arrangement,
  expectation: RowExpectation,
): MovedPerToken {
  const moving = survey.matrices.filter((matrix) => !resident.has(matrix));
  const denseBytes = (kind: PassKind) =>
    moving.filter((matrix) => streamsIn(matrix, policy, kind)).reduce((sum, { bytes }) => sum + bytes, 0);
  const fed = moving.filter((matrix) => matrix.treatment === 'packets' && policy.rows.decode !== 'streamed');
  const expectedPacketBytes = Math.round(
    fed.reduce((sum, matrix) => sum + expectation.bytes(matrix, keptRows.get(matrix) ?? 0), 0),
  );
  const denseDecodeBytes = denseBytes('decode');
  const embeddingBytes = tokenPath === 'rows' ? tableRowBytes(survey.tokenTable) : 0;
  return {
    denseDecodeBytes,
    densePrefillBytes: denseBytes('prefill'),
    packetNeurons: fed.reduce((sum, { rows }) => sum + rows, 0),
    packetBytesAtFullActivity: fed.reduce((sum, { bytes }) => sum + bytes, 0),
    activeShare: expectation.activity.activeShare,
    activeShareSource: expectation.activity.source,
    expectedPacketBytes,
    embeddingBytes,
    expectedBytes: denseDecodeBytes + expectedPacketBytes + embeddingBytes,
  };
}

function streamsIn(matrix: SurveyedMatrix, policy: AcquisitionPolicy, kind: PassKind): boolean {
  return (
    streams(matrix, false, policy) && (matrix.treatment !== 'packets' || policy.rows[kind] === 'streamed')
  );
}
