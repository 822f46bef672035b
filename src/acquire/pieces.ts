import { blockInputs } from '../backend/ops.js';
import { storedBytes } from '../base/stored-type.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';

/** Part of a streamed matrix: contiguous stored rows, and what they are in terms of inputs or outputs. */
export interface Piece {
  readonly rowBegin: number;
  readonly rowEnd: number;
  readonly byteOffset: number; // from the start of the tensor
  readonly byteLength: number;
}

/** Outputs that an output-major piece is a multiple of; keeps pieces of 16-bit rows at 4-byte offsets. */
const outputUnit = 16;

/** Stored rows of a matrix: inputs where it is input-major, else outputs. */
export function storedRows(matrix: MatrixDescription): number {
  return matrix.layout === 'input-major' ? matrix.inputs : matrix.outputs;
}

/** Bytes of one stored row. */
export function storedRowBytes(matrix: MatrixDescription): number {
  const elements = matrix.layout === 'input-major' ? matrix.outputs : matrix.inputs;
  return elements * storedBytes[matrix.type];
}

/** Bytes of the smallest piece that a matrix can be streamed in. */
export function smallestPieceBytes(matrix: MatrixDescription): number {
  return Math.min(unitRows(matrix), storedRows(matrix)) * storedRowBytes(matrix);
}

/** Bytes of the largest piece that `cutIntoPieces` would make; infinity where it would throw. */
export function largestPieceBytes(matrix: MatrixDescription, limitBytes: number): number {
  if (smallestPieceBytes(matrix) > limitBytes) return Infinity;
  return Math.min(storedRows(matrix), rowsAPiece(matrix, limitBytes)) * storedRowBytes(matrix);
}

/**
 * Cuts a matrix into pieces of at most `limitBytes`, as equal as the unit allows: 128 inputs (one block of the
 * summation rule) or 16 outputs. Throws `RangeError` when one unit is larger than the limit.
 */
export function cutIntoPieces(matrix: MatrixDescription, limitBytes: number): Piece[] {
  if (smallestPieceBytes(matrix) > limitBytes) {
    throw new RangeError(
      `Cannot stream "${matrix.id}" in pieces of ${limitBytes} bytes: its smallest piece is ${smallestPieceBytes(matrix)} bytes`,
    );
  }
  const rows = storedRows(matrix);
  const rowBytes = storedRowBytes(matrix);
  const step = rowsAPiece(matrix, limitBytes);
  const pieces: Piece[] = [];
  for (let rowBegin = 0; rowBegin < rows; rowBegin += step) {
    const rowEnd = Math.min(rows, rowBegin + step);
    pieces.push({
      rowBegin,
      rowEnd,
      byteOffset: rowBegin * rowBytes,
      byteLength: (rowEnd - rowBegin) * rowBytes,
    });
  }
  return pieces;
}

/** As many units as fit the limit, then evened out over the number of pieces that this gives. */
function rowsAPiece(matrix: MatrixDescription, limitBytes: number): number {
  const unit = unitRows(matrix);
  const units = Math.ceil(storedRows(matrix) / unit);
  const most = Math.max(1, Math.floor(limitBytes / (unit * storedRowBytes(matrix))));
  return Math.ceil(units / Math.ceil(units / most)) * unit;
}

function unitRows(matrix: MatrixDescription): number {
  return matrix.layout === 'input-major' ? blockInputs : outputUnit;
}
