import type { BudgetComponent } from '../memory/budget.js';
import type { Choice } from './arrangement.js';
import { hotIndexBytes } from './hot-rows.js';
import { lruIndexBytes } from './lru-rows.js';
import type { RowArena } from './placement.js';
import { type AcquisitionPolicy, rowPathOf } from './policy.js';
import type { Retention } from './retain-rows.js';
import { packetIndexBytes } from './staged-way.js';
import type { SurveyedMatrix } from './survey.js';

/** Of an index of retained rows: JavaScript memory, or the device's where ops there look rows up. */
export const retentionIndexLabel = 'retention index';

/** Bytes of JavaScript memory: reserved, not allocated. */
export const reservedLabels = ['kept-row index', retentionIndexLabel, 'guess lists', 'guess tables'] as const;

/** One arena for each width and type of rows. */
export function planArenas(
  fed: readonly SurveyedMatrix[],
  policy: AcquisitionPolicy,
  choice: Choice,
  keptRows: ReadonlyMap<SurveyedMatrix, number>,
): { arenas: RowArena[]; arenaOf: Map<SurveyedMatrix, number> } {
  const path = rowPathOf(policy);
  const byShape = new Map<string, SurveyedMatrix[]>();
  for (const matrix of fed) {
    const key = `${matrix.description.type} ${matrix.rowBytes}`;
    byShape.set(key, [...(byShape.get(key) ?? []), matrix]);
  }
  const arenaOf = new Map<SurveyedMatrix, number>();
  const arenas = [...byShape.values()].map((matrices, index): RowArena => {
    for (const matrix of matrices) arenaOf.set(matrix, index);
    const { description, rowBytes } = matrices[0]!;
    const most = Math.max(...matrices.map(({ rows }) => rows));
    return {
      type: description.type,
      rowElements: description.layout === 'input-major' ? description.outputs : description.inputs,
      rowBytes,
      packetRows: Math.min(choice.packetRows, most),
      keptRows: matrices.reduce((sum, matrix) => sum + (keptRows.get(matrix) ?? 0), 0),
      guessRooms: path === 'forecast' ? guessRooms(matrices) : 0,
      guessRows: path === 'forecast' ? Math.min(choice.packetRows, largestGuess, most) : 0,
      scatterRows: path === 'staged' ? most : 0,
    };
  });
  return { arenas, arenaOf };
}

/** Hardly a token of a published model needs more rows of a layer. */
const largestGuess = 1024;

/** Of two layers at once: the one that guesses, and the one whose ops may still read its guess. */
function guessRooms(matrices: readonly SurveyedMatrix[]): number {
  const ofLayer = new Map<number | null, number>();
  for (const { description } of matrices) {
    ofLayer.set(description.layer, (ofLayer.get(description.layer) ?? 0) + 1);
  }
  return Math.min(2, ofLayer.size) * Math.max(...ofLayer.values());
}

/** Everything that a row path holds beside the active set and the slot list. */
export function rowComponents(
  fed: readonly SurveyedMatrix[],
  arenas: readonly RowArena[],
  keptRows: ReadonlyMap<SurveyedMatrix, number>,
  policy: AcquisitionPolicy,
  retention: Retention | null,
): BudgetComponent[] {
  const rowsOf = (rows: (arena: RowArena) => number) =>
    arenas.reduce((sum, arena) => sum + rows(arena) * arena.rowBytes, 0);
  const packet: BudgetComponent = {
    label: 'packet rows',
    cause: 'packet-rows',
    bytes: rowsOf(({ packetRows }) => packetRows),
  };
  const kept = rowsOf((arena) => arena.keptRows);
  switch (rowPathOf(policy)) {
    case null:
    case 'extents':
      return [packet];
    case 'packets':
    case 'certified': {
      const index = kept > 0 ? keptIndexBytes(fed) : 0;
      return [
        packet,
        { label: 'kept rows', cause: 'kept-rows', bytes: kept },
        { label: 'kept-row index', cause: 'indices', bytes: index },
      ];
    }
    case 'staged': {
      const packetRows = arenas.reduce((sum, arena) => sum + arena.packetRows, 0);
      return [
        packet,
        { label: 'packet indices', cause: 'indices', bytes: packetRows * packetIndexBytes },
        { label: 'scattered rows', cause: 'workspace', bytes: rowsOf(({ scatterRows }) => scatterRows) },
      ];
    }
    case 'retained': {
      const lru = retention?.kind === 'lru';
      const indexOf = (matrix: SurveyedMatrix) =>
        lru ? lruIndexBytes(matrix.rows, keptRows.get(matrix) ?? 0) : hotIndexBytes(matrix.rows);
      const index = kept > 0 ? fed.reduce((sum, matrix) => sum + indexOf(matrix), 0) : 0;
      return [
        packet,
        lru
          ? { label: 'retention slots', cause: 'retention-slots', bytes: kept }
          : { label: 'hot rows', cause: 'retention-resident', bytes: kept },
        { label: retentionIndexLabel, cause: 'retention-index', bytes: index },
      ];
    }
    case 'forecast': {
      const listRows = Math.max(0, ...arenas.map(({ guessRows }) => guessRows));
      return [
        packet,
        {
          label: 'guessed rows',
          cause: 'forecast-rows',
          bytes: rowsOf(({ guessRooms, guessRows }) => guessRooms * guessRows),
        },
        { label: 'guess lists', cause: 'indices', bytes: 4 * listRows * fed.length },
      ];
    }
  }
}

/** A slot number for each neuron, 4 bytes. */
export function keptIndexBytes(fed: readonly SurveyedMatrix[]): number {
  return fed.reduce((sum, matrix) => sum + 4 * matrix.rows, 0);
}
