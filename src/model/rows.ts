import { Buffer } from 'node:buffer';
import { type Span, subspan } from '../memory/buffers.js';
import { type BatchLimits, checkBatch, type ForwardBatch } from './batch.js';
import type { ModelParts } from './model.js';

export function limitsOf(parts: ModelParts): BatchLimits {
  return {
    maxRows: parts.workspace.limits.maxRows,
    maxLogitsRows: parts.workspace.limits.maxLogitsRows,
    slots: parts.cache.shape.slots,
    capacity: parts.cache.shape.capacity,
    maxPositions: parts.config.maxPositions,
    vocabSize: parts.config.vocabSize,
  };
}

/** Refuses a bad batch before anything is queued, then tells the backend where the rows stand. */
export function placeRows(parts: ModelParts, batch: ForwardBatch): void {
  const { workspace, backend } = parts;
  checkBatch(batch, limitsOf(parts));
  writeInts(
    workspace.rows,
    batch.rows.flatMap((row) => [row.slot, row.position]),
  );
  writeInts(workspace.logitsRows, batch.logitsRows);

  function writeInts(target: Span, values: readonly number[]): void {
    if (values.length === 0) return;
    const ints = Int32Array.from(values);
    backend.write(subspan(target, 0, ints.byteLength), Buffer.from(ints.buffer));
  }
}

/** Token ids of the rows, in their order. */
export function tokenIds({ rows }: ForwardBatch): number[] {
  return rows.map(({ tokenId }) => tokenId);
}

/** Int32 [rows, 2]: where the rows of the pass stand. */
export function rowSpan(parts: ModelParts, rows: number): Span {
  return subspan(parts.workspace.rows, 0, rows * 8);
}

/** The first `rows` rows of an F32 span of rows of `width`. */
export function floatRows(span: Span, rows: number, width: number): Span {
  return subspan(span, 0, rows * width * 4);
}
