import type { PlacedOp } from '../backend/ops.js';
import type { Span } from '../memory/buffers.js';
import type { ForwardBatch } from '../model/batch.js';

/** A pass that was one submission: what it submitted, and where its logits lie. */
export interface RecordedPass {
  /** Frozen: backends keep what they made of a list that can come again. */
  readonly ops: readonly PlacedOp[];
  readonly logits: Span;
}

/** Passes beyond this many give way, the longest unused first: a batch that shrinks has one for each size. */
const mostPasses = 8;

/**
 * Ops of passes that come again word for word. Building them takes a model some tenths of a millisecond, which counts
 * where a device computes the whole pass in one or two.
 */
export class RecordedPasses {
  readonly #passes = new Map<string, RecordedPass>();

  find(batch: ForwardBatch): RecordedPass | null {
    const key = keyOf(batch);
    const found = this.#passes.get(key);
    if (found === undefined) return null;
    this.#passes.delete(key); // most recent last
    this.#passes.set(key, found);
    return found;
  }

  keep(batch: ForwardBatch, ops: readonly PlacedOp[], logits: Span): void {
    this.#passes.set(keyOf(batch), { ops: Object.freeze(ops), logits });
    if (this.#passes.size > mostPasses) this.#passes.delete(this.#passes.keys().next().value!);
  }
}

/** What the ops of a pass depend on; which rows of it give logits is written to a buffer. */
function keyOf({ kind, rows, logitsRows }: ForwardBatch): string {
  return `${kind} ${rows.length} ${logitsRows.length}`;
}
