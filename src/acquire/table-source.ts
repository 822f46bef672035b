import type { Backend } from '../backend/backend.js';
import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import type { TableDescription } from '../checkpoint/model-description.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { Ledger } from '../memory/ledger.js';
import type { WeightMover } from './executor.js';
import type { PlacedTable } from './placement.js';
import type { GatherRequest } from './weight-source.js';

/** A table of an opened source. */
export interface BoundTable {
  readonly description: TableDescription;
  readonly placed: PlacedTable;
  readonly filePosition: number;
  /** The table, the head that holds its weights `[columns, rows]`, or room for the rows of one pass. */
  readonly span: Span;
  readonly ids: Span; // Int32 [maxRows]
}

/** Looks rows up: in the resident table, in the head, or by reading the rows of a pass from the file. */
export async function gatherRows(
  pass: Pass,
  table: BoundTable,
  request: GatherRequest,
  mover: WeightMover,
  ledger: Ledger,
): Promise<void> {
  const { description, placed, span } = table;
  const { id, rows: tableRows, columns, type } = description;
  requireRows(table, request.ids);
  let ids = request.ids;
  if (placed.path === 'rows') ids = await readRows(table, request.ids, mover, ledger.pass);
  const target = writeIds(pass.backend, table, ids);
  pass.emit(id, {
    kind: 'gather',
    rows: ids.length,
    columns,
    table: span,
    tableRows: placed.path === 'rows' ? span.byteLength / placed.rowBytes : tableRows,
    type,
    rowStride: placed.path === 'head' ? 1 : columns,
    columnStride: placed.path === 'head' ? tableRows : 1,
    ids: target,
    out: request.out,
  });
}

/** Writes what a repeated pass looks up in a table that is not read row by row. */
export function writeLookedUp(backend: Backend, table: BoundTable, ids: readonly number[]): void {
  requireRows(table, ids);
  writeIds(backend, table, ids);
}

function requireRows({ description: { id, rows } }: BoundTable, ids: readonly number[]): void {
  const outside = ids.find((row) => !Number.isSafeInteger(row) || row < 0 || row >= rows);
  if (outside !== undefined) {
    throw new DefectError(`Cannot look up row ${outside} of "${id}": it has ${rows} rows`);
  }
}

function writeIds(backend: Backend, table: BoundTable, ids: readonly number[]): Span {
  const words = Int32Array.from(ids);
  const target = subspan(table.ids, 0, words.byteLength);
  backend.write(target, new Uint8Array(words.buffer));
  return target;
}

/** Reads each distinct row once; returns where in the room the row of each id lies. */
async function readRows(
  { description, placed, span, filePosition }: BoundTable,
  ids: readonly number[],
  mover: WeightMover,
  pass: number,
): Promise<number[]> {
  const distinct = [...new Set(ids)].sort((a, b) => a - b);
  const placeOf = new Map(distinct.map((row, place) => [row, place]));
  const { rowBytes } = placed;
  await mover.move(
    { cause: 'embedding-rows', layer: null, id: description.id, rows: distinct.length, pass },
    distinct.map((row, place) => ({
      position: filePosition + row * rowBytes,
      target: subspan(span, place * rowBytes, rowBytes),
    })),
  );
  return ids.map((row) => placeOf.get(row)!);
}
