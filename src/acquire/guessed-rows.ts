import type { GuessRowsOp } from '../backend/ops.js';
import type { RowIndex } from '../backend/row-index.js';
import { type Span, subspan } from '../memory/buffers.js';
import { type BoundMatrix, matrixOperand } from './bound-matrix.js';
import type { ForecastTiming } from './forecast-way.js';
import type { DirectSpans } from './open-direct.js';

/** Rows of one matrix that a device guesses by itself to be those of the pass before. */
export interface GuessedRows {
  readonly timing: ForecastTiming;
  /** U32 [1 + neurons], the active set of the pass before. */
  readonly set: Span;
  readonly index: RowIndex;
  /** The places, `[places, row bytes]`. */
  readonly span: Span;
  readonly guessed: Span; // U32 [1]
}

/** What guessing needs of a matrix; `place`: its number among those that are read directly. */
export interface GuessRequest {
  readonly timing: ForecastTiming;
  readonly place: number;
  readonly neurons: number;
  /** Number of the room among those of all arenas. */
  readonly room: number;
  readonly places: number;
  readonly span: Span;
}

/** Null where the host guesses. */
export function guessedRows(spans: DirectSpans, request: GuessRequest): GuessedRows | null {
  const { timing, place, neurons, room, places, span } = request;
  if (spans.guessed === null || spans.guessIndices === null) return null;
  const words = subspan(spans.guessIndices, 4 * room * spans.neurons, 4 * neurons);
  return {
    timing,
    set: setOf(spans, place, neurons),
    index: { neurons, places, replaces: false, span: words },
    span,
    guessed: subspan(spans.guessed, 4 * place, 4),
  };
}

/** The active set of a matrix, by its number. */
export function setOf({ sets, neurons }: DirectSpans, place: number, width: number): Span {
  return subspan(sets, 4 * place * (1 + neurons), 4 * (1 + width));
}

export function guessOp(
  matrix: BoundMatrix,
  { set, index, span, guessed }: GuessedRows,
  mirror: Span,
): GuessRowsOp {
  const rows = matrixOperand(matrix.description, mirror);
  return { kind: 'guess-rows', set, index, held: span, matrix: rows, guessed };
}
