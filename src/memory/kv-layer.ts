import type { Span } from './buffers.js';

/**
 * KV cache of one layer. Keys `[slots, kvHeads, headDim, capacity]` (positions adjacent), values
 * `[slots, kvHeads, capacity, headDim]`.
 */
export interface KvLayer {
  readonly type: 'f16' | 'f32';
  readonly keys: Span;
  readonly values: Span;
  readonly slots: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly capacity: number; // positions
}
