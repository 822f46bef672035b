import type { QuantisedType } from '../base/quantised-type.js';
import type { StoredType } from '../base/stored-type.js';
import type { LowBitFormat } from '../checkpoint/low-bit.js';
import type { ActivationKind } from '../checkpoint/model-config.js';
import type { Span } from '../memory/buffers.js';
import type { KvLayer } from '../memory/kv-layer.js';
import type { RowIndex } from './row-index.js';

export type { KvLayer } from '../memory/kv-layer.js';

/**
 * The op list: everything a backend can be asked to compute, as plain tagged records. Arithmetic of each op is fixed
 * by docs/numerics.md; the order of additions is part of the meaning. T is the number of rows (tokens) of a pass;
 * activations are F32, row-major and dense unless a stride is given. Strides and counts are in elements, offsets
 * in bytes. An op may not alias an input with its output unless it says "in place".
 */

/**
 * A matrix of K inputs and N outputs as it lies in memory.
 * `input-major`: row i holds the weights of input i to all outputs, `[K, N]`.
 * `output-major`: row j holds the weights of all inputs to output j, `[N, K]`.
 * `rowStride` is the distance between stored rows.
 */
export interface Matrix {
  readonly span: Span;
  readonly type: StoredType;
  readonly layout: 'input-major' | 'output-major';
  readonly rowStride: number;
}

/** out[t, c] = widen(table[ids[t] * rowStride + c * columnStride]). Token and position tables, and row selection. */
export interface GatherOp {
  readonly kind: 'gather';
  readonly rows: number; // T
  readonly columns: number;
  readonly table: Span;
  readonly tableRows: number;
  readonly type: StoredType;
  readonly rowStride: number;
  readonly columnStride: number;
  readonly ids: Span; // Int32 [T]
  readonly out: Span; // F32 [T, columns]
}

/**
 * y = W x + b (+ residual) over inputs `[inputBegin, inputEnd)`, in blocks of 128 inputs counted from input 0.
 * `inputBegin` is a multiple of 128. The matrix span starts at input `inputBegin` in either layout: row 0 of an
 * input-major matrix and column 0 of an output-major one belong to `inputBegin`. An output-major matrix holds only the
 * outputs `[0, outputs)` of this op, whose results land at `outOffset` columns.
 * `continues`: the block sums are added to what `out` already holds from the preceding inputs instead of to +0.
 * Bias, then residual, are added when `bias` / `residual` are given (only on the op with the last inputs).
 */
export interface LinearOp {
  readonly kind: 'linear';
  readonly rows: number; // T
  readonly x: Span; // F32 [T, xStride]
  readonly xStride: number;
  readonly inputBegin: number;
  readonly inputEnd: number;
  readonly outputs: number; // N of this op
  readonly matrix: Matrix;
  readonly out: Span; // F32 [T, outStride]
  readonly outStride: number;
  readonly outOffset: number;
  readonly continues: boolean;
  readonly bias: Span | null; // F32 [outputs]
  readonly residual: Span | null; // F32 [T, outStride], same columns as out
  readonly numerics?: ProductNumerics;
}

/**
 * y = W x + b (+ residual) as `linear` over all inputs of an input-major matrix, the weights being code * scale (exact in
 * binary32) of src/base/quantised-type.ts. Scales are +0 or positive, at most 2^100. Not exact where the matrix stands for
 * another one; as an op it is as exact as `linear`.
 */
export interface QuantisedLinearOp {
  readonly kind: 'quantised-linear';
  readonly rows: number; // T
  readonly x: Span; // F32 [T, inputs]
  readonly inputs: number; // K
  readonly outputs: number; // N
  readonly type: QuantisedType;
  readonly codes: Span; // U32 [K / inputs of a word, N]
  readonly scales: Span; // BF16 [groups, N]
  readonly out: Span; // F32 [T, N]
  readonly bias: Span | null; // F32 [N]
  readonly residual: Span | null; // F32 [T, N]
}

/**
 * Absent: the contract. `native`: the device's own arithmetic for products of prompt positions (docs/numerics.md, "Native");
 * a `Pass` in native numerics says so, and only backends opened in them are given such ops.
 */
export type ProductNumerics = 'native';

/**
 * The set of active neurons of a pass, ascending, the union over its rows.
 * U32: word 0 the count, words 1..count the neuron indices. Holds 1 + width words.
 */
export type ActiveSpan = Span;

/** active = ascending { i : some x[t, i] != 0 } (NaN counts as active, -0 does not). */
export interface CompactOp {
  readonly kind: 'compact';
  readonly rows: number; // T
  readonly width: number;
  readonly x: Span; // F32 [T, width]
  readonly active: ActiveSpan;
}

/**
 * Second projection from active rows: as `linear` over an input-major matrix, restricted to the neurons at positions
 * `[listBegin, listEnd)` of the active set (`listEnd` -1: to its count). Neuron at list position p lies at matrix row
 * `slots[p]`, or at row = neuron index when `slots` is null. All neurons left out must be zero in x, or lie in
 * another op of the same chain; blocks of 128 are counted by neuron index, so that a chain split at block boundaries
 * gives the bits of one op.
 */
export interface ActiveInputsOp {
  readonly kind: 'active-inputs';
  readonly rows: number; // T
  readonly x: Span; // F32 [T, xStride]
  readonly xStride: number;
  readonly active: ActiveSpan;
  readonly listBegin: number;
  readonly listEnd: number;
  readonly slots: Span | null; // U32, indexed by list position
  readonly outputs: number; // N
  readonly matrix: Matrix; // input-major
  readonly out: Span; // F32 [T, N]
  readonly continues: boolean;
  readonly bias: Span | null;
  readonly residual: Span | null; // F32 [T, N]
  readonly numerics?: ProductNumerics;
}

/**
 * Rows of an output-major matrix for the outputs of an active set (gated units: `up` rows where the gate is not 0).
 * out[t, neuron] = W[neuron] . x[t] + bias[neuron] for list positions `[listBegin, listEnd)`, other columns untouched.
 */
export interface ActiveOutputsOp {
  readonly kind: 'active-outputs';
  readonly rows: number; // T
  readonly x: Span; // F32 [T, inputs]
  readonly inputs: number; // K
  readonly active: ActiveSpan;
  readonly listBegin: number;
  readonly listEnd: number;
  readonly slots: Span | null;
  readonly matrix: Matrix; // output-major
  readonly out: Span; // F32 [T, outStride]
  readonly outStride: number;
  readonly bias: Span | null; // F32, indexed by neuron
  readonly numerics?: ProductNumerics;
}

/**
 * Looks an active set up in an index of held rows: `hits` is the number of its neurons that have a place. Where the index
 * replaces, the held neurons of the set are then used, ascending; after them the missing ones, ascending, as long as a place
 * is left that the set does not use: each gets the one that was used longest ago, and is fresh until the next set that
 * holds it. Only backends with a host tier are given it.
 */
export interface RetainRowsOp {
  readonly kind: 'retain-rows';
  readonly active: ActiveSpan;
  readonly index: RowIndex;
  readonly hits: Span; // U32 [1]
}

/**
 * As `active-inputs` over the whole active set of x, with the rows of neurons that have a place, and are not fresh, taken
 * from there. Others come from the matrix, row = neuron; those of fresh neurons are written to their places on the way.
 * `held` holds stored rows of the matrix's type and stride, by place. Only backends with a host tier are given it, for
 * at most `HostTier.directRows` rows.
 */
export interface HeldInputsOp {
  readonly kind: 'held-inputs';
  readonly rows: number; // T
  readonly x: Span; // F32 [T, neurons]
  readonly active: ActiveSpan; // that of x
  readonly index: RowIndex;
  readonly held: Span;
  readonly outputs: number; // N
  readonly matrix: Matrix; // input-major
  readonly out: Span; // F32 [T, N]
  readonly bias: Span | null;
  readonly residual: Span | null; // F32 [T, N]
}

/** As `active-outputs` over a whole active set, with rows that have places as `held-inputs` has them. */
export interface HeldOutputsOp {
  readonly kind: 'held-outputs';
  readonly rows: number; // T
  readonly x: Span; // F32 [T, inputs]
  readonly inputs: number; // K
  readonly active: ActiveSpan;
  readonly index: RowIndex;
  readonly held: Span;
  readonly matrix: Matrix; // output-major
  readonly out: Span; // F32 [T, outStride]
  readonly outStride: number;
  readonly bias: Span | null; // F32, indexed by neuron
}

/**
 * A matrix of K inputs and N neurons in few bits, with what certificates need of each neuron (docs/certificates.md). The
 * span holds the sections of `lowBitLayout(format, inputs, outputs, directions)`.
 */
export interface LowBitCopy {
  readonly span: Span; // aligned to 64
  readonly format: LowBitFormat;
  readonly inputs: number; // K
  readonly outputs: number; // N
  /** r; 0 for none. */
  readonly directions: number;
  /** Directions are the stored whole numbers times 2^-directionExponent. */
  readonly directionExponent: number;
}

/**
 * Brings rows of the neurons of a set, the first ones as far as there are places, to places of their own, and makes a fixed
 * index anew: the n-th neuron has place n, all others have none. `guessed` is how many were brought. A backend may run it
 * beside what comes behind, up to the next `compact` into `set`, op on an index there, or end of the submission: ops in between leave
 * its spans alone. Only backends with a host tier are given it.
 */
export interface GuessRowsOp {
  readonly kind: 'guess-rows';
  readonly set: ActiveSpan;
  readonly index: RowIndex; // does not replace
  readonly held: Span; // stored rows of the matrix's type and stride, by place
  readonly matrix: Matrix; // row = neuron
  readonly guessed: Span; // U32 [1]
}

/**
 * Rounds the inputs of a pass to 16-bit whole numbers times a power of two, takes their components along the directions
 * of a copy, and computes the factors of its error bounds, in binary64 by docs/certificates.md. What depends on the copy
 * is K, r and V alone.
 */
export interface RoundInputOp {
  readonly kind: 'round-input';
  readonly rows: number; // T
  readonly x: Span; // F32 [T, K]
  readonly copy: LowBitCopy;
  readonly out: Span; // roundedInputLayout(T, K, r)
}

/**
 * out[t, n] = +0 where it is proven that the contract's pre-activation of neuron n, W[n] . x[t] + bias[n], is not above
 * the threshold, so that its activation is +0; else 1: uncertain. Exact whole-number products and binary64 in a stated
 * order: equal on every backend.
 */
export interface CertifyOp {
  readonly kind: 'certify';
  readonly rows: number; // T
  readonly copy: LowBitCopy;
  readonly input: Span; // what `round-input` wrote for these rows and this copy
  readonly bias: Span | null; // F32 [N]
  readonly threshold: number; // F32: 0, or that of fatrelu
  readonly out: Span; // F32 [T, N]
}

/** In place: x = activation(x). `threshold` is used by fatrelu alone. */
export interface ActivateOp {
  readonly kind: 'activate';
  readonly count: number;
  readonly activation: ActivationKind;
  readonly threshold: number;
  readonly x: Span; // F32 [count]
}

/** In place in `gate`: gate = gate == 0 ? +0 : gate * up; the result of a product that is zero is +0. */
export interface GatedProductOp {
  readonly kind: 'gated-product';
  readonly count: number;
  readonly gate: Span; // F32 [count]
  readonly up: Span; // F32 [count]
}

/** out = a + b, elementwise; out may be a or b. */
export interface AddOp {
  readonly kind: 'add';
  readonly count: number;
  readonly a: Span;
  readonly b: Span;
  readonly out: Span;
}

/** `layer`: ((x - mean) * r) * gamma + beta. `rms`: (x * r) * gamma. Absent gamma or beta leaves its step out. */
export interface NormOp {
  readonly kind: 'norm';
  readonly norm: 'layer' | 'rms';
  readonly rows: number; // T
  readonly width: number;
  readonly epsilon: number; // rounded to F32
  readonly x: Span; // F32 [T, width]
  readonly gamma: Span | null; // F32 [width]
  readonly beta: Span | null; // F32 [width]
  readonly out: Span; // F32 [T, width]; may be x
}

/** Where the rows of a pass stand: Int32 [T, 2] of (KV slot, position in its own sequence). */
export type RowSpan = Span;

/** In place rotary embedding of the first `rotary` elements of each head, halves paired (i with i + rotary / 2). */
export interface RopeOp {
  readonly kind: 'rope';
  readonly rows: number; // T
  readonly heads: number;
  readonly headDim: number;
  readonly rotary: number;
  readonly positions: RowSpan;
  readonly cosines: Span; // F32 [table positions, rotary / 2]
  readonly sines: Span; // F32 [table positions, rotary / 2]
  readonly x: Span; // F32 [T, heads, headDim]
}

/**
 * Writes a pass's keys and values, rounding to the KV type once. A finite value that would be stored as infinity
 * makes `submit` reject with `NumericsError` `kv-overflow`.
 */
export interface StoreKvOp {
  readonly kind: 'store-kv';
  readonly rows: number; // T
  readonly positions: RowSpan;
  readonly keys: Span; // F32 [T, kvHeads, headDim]
  readonly values: Span; // F32 [T, kvHeads, headDim]
  readonly cache: KvLayer;
}

/**
 * Causal attention of each row over positions 0..own of its own slot, reading only what the cache stores. Query head
 * h uses KV head floor(h / (heads / kvHeads)). score = (q . k) * scale; softmax as docs/numerics.md.
 */
export interface AttentionOp {
  readonly kind: 'attention';
  readonly rows: number; // T
  readonly heads: number;
  readonly positions: RowSpan;
  readonly scale: number; // F32
  readonly query: Span; // F32 [T, heads, headDim]
  readonly cache: KvLayer;
  readonly scratch: Span; // F32 [backend.parallelism, capacity]
  readonly out: Span; // F32 [T, heads, headDim]
}

/**
 * out[t] = id of the largest of row t, the lowest one of equals; `noGreedyId` where some value of the row is not finite. Only
 * backends with `HostTier.readLater` are given it: others have the row where the host can look at it.
 */
export interface GreedyOp {
  readonly kind: 'greedy';
  readonly rows: number;
  readonly width: number;
  readonly x: Span; // F32 [rows, width]
  readonly out: Span; // U32 [rows]
}

export const noGreedyId = 0xffff_ffff;

export type Op =
  | GatherOp
  | LinearOp
  | QuantisedLinearOp
  | CompactOp
  | ActiveInputsOp
  | ActiveOutputsOp
  | RetainRowsOp
  | HeldInputsOp
  | HeldOutputsOp
  | GuessRowsOp
  | RoundInputOp
  | CertifyOp
  | ActivateOp
  | GatedProductOp
  | AddOp
  | NormOp
  | RopeOp
  | StoreKvOp
  | AttentionOp
  | GreedyOp;

export type OpKind = Op['kind'];

/** An op with the place in the model that asked for it, for traces and for errors. */
export interface PlacedOp {
  readonly op: Op;
  /** For example `layers.3.down`; `diff` names it. */
  readonly label: string;
}

/** Inputs of one block of the summation rule. */
export const blockInputs = 128;
