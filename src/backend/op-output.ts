import type { Span } from '../memory/buffers.js';
import type { Op } from './ops.js';

/**
 * The F32 span that an op writes, rows of a pass first; null for `compact`, `retain-rows`, `guess-rows`, `greedy`, `round-input` and `store-kv`,
 * whose results are no F32 rows. `active-outputs`, `held-outputs`, and a `linear` of part of the outputs, leave columns of it as they were.
 */
export function outputOf(op: Op): Span | null {
  switch (op.kind) {
    case 'compact':
    case 'retain-rows':
    case 'guess-rows':
    case 'greedy':
    case 'round-input':
    case 'store-kv':
      return null;
    case 'activate':
    case 'rope':
      return op.x;
    case 'gated-product':
      return op.gate;
    default:
      return op.out;
  }
}
