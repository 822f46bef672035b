import type { Hash } from 'node:crypto';
import { createHash } from 'node:crypto';
import { readSync, writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { ExecutionError } from '../base/errors.js';
import { type StoredType, storedBytes } from '../base/stored-type.js';
import { NonFiniteSearch, type NonFiniteWeights } from './non-finite.js';
import { transposeTile } from './transpose.js';

/**
 * Bytes of buffer that packing holds, whatever the size of a tensor: half for what was read, half for its transpose.
 * A band of a 2,048-wide F16 matrix then has 8,192 rows, so that each written column segment is 16 KiB.
 */
export const packBufferBytes = 64 * 1024 * 1024;

/** Shortest column segment worth a write of its own; below it, tiles are narrower than a source row. */
const segmentBytes = 4096;

/** Where a tensor's stored bytes come from, `byteOffset` counted from its first one. Fills the whole target. */
export type TensorReader = (byteOffset: number, target: Uint8Array) => Promise<void>;

/** What packing one tensor needs from its surroundings. */
export interface PackTarget {
  readonly descriptor: number; // of the weights file, open for reading and writing
  readonly byteOffset: number; // of the tensor in it
  /** Called after each piece with the bytes written since the last call; throws to stop. */
  readonly wrote: (byteLength: number) => void;
}

/** What was written. */
export interface Packed {
  readonly sha256: string;
  readonly nonFinite: NonFiniteWeights | null;
}

/** Two halves of `packBufferBytes` (or of fewer bytes, in tests), reused for every tensor of a checkpoint. */
export class PackBuffers {
  readonly source: ArrayBuffer;
  readonly result: ArrayBuffer;

  constructor(byteLength: number = packBufferBytes) {
    const half = Math.floor(byteLength / 2);
    this.source = new ArrayBuffer(half);
    this.result = new ArrayBuffer(half);
  }
}

/** Copies a tensor as it is stored: tables and output-major matrices. `columns` is used to say where a weight lies. */
export async function packCopy(
  read: TensorReader,
  rows: number,
  columns: number,
  type: StoredType,
  target: PackTarget,
  buffers: PackBuffers,
): Promise<Packed> {
  const byteLength = rows * columns * storedBytes[type];
  const step = buffers.source.byteLength - (buffers.source.byteLength % 16);
  const hash = createHash('sha256');
  const search = new NonFiniteSearch(type, columns);
  for (let offset = 0; offset < byteLength; offset += step) {
    const chunk = new Uint8Array(buffers.source, 0, Math.min(step, byteLength - offset));
    await read(offset, chunk);
    search.scan(chunk, offset / storedBytes[type]);
    writeFully(target.descriptor, chunk, target.byteOffset + offset);
    hash.update(chunk);
    target.wrote(chunk.byteLength);
  }
  return { sha256: hash.digest('hex'), nonFinite: search.result };
}

/**
 * Writes the transpose of a tensor stored `[rows, columns]`, that is `[columns, rows]`. The tensor is read in bands of
 * whole rows and written in column segments; only where a band would leave segments under 4 KiB is a row split too.
 */
export async function packTransposed(
  read: TensorReader,
  rows: number,
  columns: number,
  type: StoredType,
  target: PackTarget,
  buffers: PackBuffers,
): Promise<Packed> {
  const size = storedBytes[type];
  const search = new NonFiniteSearch(type, columns);
  const hash = createHash('sha256');
  const tile = tileShape(rows, columns, size, buffers.source.byteLength);
  for (let row = 0; row < rows; row += tile.rows) {
    const tileRows = Math.min(tile.rows, rows - row);
    for (let column = 0; column < columns; column += tile.columns) {
      const tileColumns = Math.min(tile.columns, columns - column);
      const byteLength = tileRows * tileColumns * size;
      const source = new Uint8Array(buffers.source, 0, byteLength);
      if (tileColumns === columns) {
        await read(row * columns * size, source);
        search.scan(source, row * columns);
      } else {
        for (let line = 0; line < tileRows; line++) {
          const first = (row + line) * columns + column;
          const part = source.subarray(line * tileColumns * size, (line + 1) * tileColumns * size);
          await read(first * size, part);
          search.scan(part, first);
        }
      }
      const result = new Uint8Array(buffers.result, 0, byteLength);
      transposeTile(buffers.source, buffers.result, tileRows, tileColumns, size);
      if (tileRows === rows) {
        writeFully(target.descriptor, result, target.byteOffset + column * rows * size);
      } else {
        const segment = tileRows * size;
        for (let line = 0; line < tileColumns; line++) {
          const position = target.byteOffset + ((column + line) * rows + row) * size;
          writeFully(target.descriptor, result.subarray(line * segment, (line + 1) * segment), position);
        }
      }
      if (tileRows === rows) hash.update(result);
      target.wrote(byteLength);
      await setImmediate(); // lets an abort or a signal be seen between tiles
    }
  }
  if (tile.rows < rows) {
    await hashWritten(hash, target.descriptor, target.byteOffset, rows * columns * size, buffers);
  }
  return { sha256: hash.digest('hex'), nonFinite: search.result };
}

/** Rows and columns of a tile of at most `byteLength` bytes. */
export function tileShape(
  rows: number,
  columns: number,
  elementBytes: number,
  byteLength: number,
): { rows: number; columns: number } {
  const elements = Math.floor(byteLength / elementBytes);
  if (rows * columns <= elements) return { rows, columns };
  const enough = Math.min(
    rows,
    Math.max(1, Math.min(segmentBytes / elementBytes, Math.floor(Math.sqrt(elements)))),
  );
  const bandRows = Math.floor(elements / columns);
  if (bandRows >= enough) return { rows: even(Math.min(rows, bandRows)), columns };
  return { rows: even(enough), columns: even(Math.min(columns, Math.floor(elements / enough))) };
}

/** Even where more than one, so that 16-bit weights are transposed in pairs. */
function even(count: number): number {
  return count > 1 ? count - (count % 2) : 1;
}

async function hashWritten(
  hash: Hash,
  descriptor: number,
  position: number,
  byteLength: number,
  buffers: PackBuffers,
): Promise<void> {
  const step = Math.min(buffers.source.byteLength, 8 * 1024 * 1024);
  for (let offset = 0; offset < byteLength; offset += step) {
    const chunk = new Uint8Array(buffers.source, 0, Math.min(step, byteLength - offset));
    let filled = 0;
    while (filled < chunk.byteLength) {
      const count = readSync(
        descriptor,
        chunk,
        filled,
        chunk.byteLength - filled,
        position + offset + filled,
      );
      if (count === 0) {
        throw new ExecutionError('short-read', 'Cannot read back the packed weights: the file ends early', {
          position: String(position + offset + filled),
        });
      }
      filled += count;
    }
    hash.update(chunk);
    await setImmediate();
  }
}

/** Writes all of `bytes` at `position`; a short write is continued, so that a full disk shows as the error it is. */
export function writeFully(descriptor: number, bytes: Uint8Array, position: number): void {
  let written = 0;
  while (written < bytes.byteLength) {
    written += writeSync(descriptor, bytes, written, bytes.byteLength - written, position + written);
  }
}
