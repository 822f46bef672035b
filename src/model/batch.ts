import type { PassKind } from '../acquire/weight-source.js';
import { DefectError, UsageError } from '../base/errors.js';

/** One token of a pass: which sequence it belongs to, where it stands in it, what it is. */
export interface BatchRow {
  readonly slot: number; // of the KV cache
  readonly position: number; // in its own sequence, from 0
  readonly tokenId: number;
}

/** What one forward pass computes. Rows of one slot may be a chunk of a prompt; earlier positions are in the cache. */
export interface ForwardBatch {
  readonly kind: PassKind;
  readonly rows: readonly BatchRow[];
  /** Indices into `rows` whose logits are wanted, in the order wanted; none for the inner chunks of a prompt. */
  readonly logitsRows: readonly number[];
}

/** What a model can take, fixed when its workspace and cache were made. */
export interface BatchLimits {
  readonly maxRows: number;
  readonly maxLogitsRows: number;
  readonly slots: number;
  /** Positions that a slot of the KV cache holds. */
  readonly capacity: number;
  /** Positions that the model itself knows. */
  readonly maxPositions: number;
  readonly vocabSize: number;
}

/**
 * Throws before anything of the pass is queued: `UsageError` `position-beyond-model`, `position-beyond-capacity` or
 * `unknown-token-id` for what a request can get wrong, `DefectError` for what only the caller's code can.
 */
export function checkBatch(batch: ForwardBatch, limits: BatchLimits): void {
  const { rows, logitsRows } = batch;
  if (rows.length === 0 || rows.length > limits.maxRows) {
    throw new DefectError(
      `Cannot run a pass of ${rows.length} rows: the workspace takes 1 to ${limits.maxRows}`,
    );
  }
  if (logitsRows.length > limits.maxLogitsRows) {
    throw new DefectError(
      `Cannot give logits of ${logitsRows.length} rows in a pass: the workspace takes ${limits.maxLogitsRows}`,
    );
  }
  const places = new Set<number>();
  for (const row of rows) {
    checkRow(row, limits);
    places.add(row.slot * limits.capacity + row.position);
  }
  if (places.size !== rows.length) {
    throw new DefectError('Cannot run a pass in which two rows have the same slot and position');
  }
  for (const index of logitsRows) {
    if (!isIndex(index, rows.length)) {
      throw new DefectError(`Cannot give logits of row ${index}: the pass has ${rows.length} rows`);
    }
  }
}

function checkRow(row: BatchRow, limits: BatchLimits): void {
  const { slot, position, tokenId } = row;
  if (!isIndex(slot, limits.slots)) {
    throw new DefectError(`Cannot use KV slot ${slot}: the cache has ${limits.slots} slots`);
  }
  if (!isIndex(position, limits.maxPositions)) {
    throw new UsageError(
      'position-beyond-model',
      `Cannot place a token at position ${position}: the model has positions 0 to ${limits.maxPositions - 1}`,
      { position, maxPositions: limits.maxPositions },
    );
  }
  if (position >= limits.capacity) {
    throw new UsageError(
      'position-beyond-capacity',
      `Cannot place a token at position ${position}: the KV cache holds ${limits.capacity} positions a sequence`,
      { position, capacity: limits.capacity },
    );
  }
  if (!isIndex(tokenId, limits.vocabSize)) {
    throw new UsageError(
      'unknown-token-id',
      `Cannot look up token id ${tokenId}: the model has ids 0 to ${limits.vocabSize - 1}`,
      { tokenId, vocabSize: limits.vocabSize },
    );
  }
}

function isIndex(value: number, length: number): boolean {
  return Number.isInteger(value) && value >= 0 && value < length;
}
