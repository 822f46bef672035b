import type { Pass } from '../backend/pass.js';
import type { Span } from '../memory/buffers.js';

/** A dense product of a forward pass, by weight id. Bias comes with the matrix. */
export interface LinearRequest {
  readonly id: string;
  readonly rows: number; // T
  readonly x: Span; // F32 [T, inputs]
  readonly out: Span; // F32 [T, outputs]; not x, not residual
  readonly residual: Span | null; // F32 [T, outputs]
}

/** `up` of a gated FFN: only outputs whose gate is not zero are needed; the others may hold anything finite. */
export interface GatedLinearRequest extends LinearRequest {
  readonly gate: Span; // F32 [T, outputs]
}

/** Rows of a table, by row index. */
export interface GatherRequest {
  readonly id: 'token-embedding' | 'position-embedding';
  readonly ids: readonly number[]; // [T]
  readonly out: Span; // F32 [T, columns]
}

/** What a pass is part of: prompt positions, or new tokens. Policies may serve them differently. */
export type PassKind = 'prefill' | 'decode';

/**
 * Gives a model its weights without telling it where they lie. A model calls these in its description's order; the
 * source emits the ops, and moves what must move. It never changes a bit of the result.
 */
export interface WeightSource {
  /** Starts a pass; called once before its first request. */
  begin(pass: Pass, kind: PassKind): Promise<void>;
  /** A vector (bias, norm), always resident. Throws `DefectError` for an unknown id. */
  vector(id: string): Span;
  gather(pass: Pass, request: GatherRequest): Promise<void>;
  /** Writes the rows of a table that a repeated pass looks up, where `gather` would. */
  lookUp(id: GatherRequest['id'], ids: readonly number[]): void;
  linear(pass: Pass, request: LinearRequest): Promise<void>;
  /** The first factor of sparsity: computes at least the outputs whose gate is not zero. */
  gatedLinear(pass: Pass, request: GatedLinearRequest): Promise<void>;
  /** The second projection: x is the activation, whose zeros need no row. */
  sparseLinear(pass: Pass, request: LinearRequest): Promise<void>;
  /** Ends a pass: submits what is left and releases staging; resolves when all of it has run. */
  end(pass: Pass): Promise<void>;
}
