// Words of the op program; src/backend/cpu/program.ts writes them and names every word.

export const WORDS_PER_OP: usize = 32;
export const OP_BYTES: usize = WORDS_PER_OP * 8;

export const GATHER: i32 = 1;
export const LINEAR: i32 = 2;
export const COMPACT: i32 = 3;
export const ACTIVE_INPUTS: i32 = 4;
export const ACTIVE_OUTPUTS: i32 = 5;
export const ACTIVATE: i32 = 6;
export const GATED_PRODUCT: i32 = 7;
export const ADD: i32 = 8;
export const NORM: i32 = 9;
export const ROPE: i32 = 10;
export const STORE_KV: i32 = 11;
export const ATTENTION: i32 = 12;
export const ROUND_INPUT: i32 = 30;
export const CERTIFY: i32 = 31;
export const QUANTISED_LINEAR: i32 = 20;

/** No op of a model: bench/wasm-kernels.mjs alone asks for it. */
export const READ_CEILING: i32 = 100;

export const TYPE_F32: i32 = 0;
export const TYPE_F16: i32 = 1;
export const TYPE_BF16: i32 = 2;

/** Inputs of one block of the summation rule (docs/numerics.md). */
export const BLOCK: i32 = 128;

/** Word `index` of an op as an address or a count that is never negative. */
// @ts-ignore: decorator
@inline
export function address(op: usize, index: usize): usize {
  return <usize>load<f64>(op + index * 8);
}

/** Word `index` of an op as an integer that may be negative. */
// @ts-ignore: decorator
@inline
export function integer(op: usize, index: usize): i32 {
  return <i32>load<f64>(op + index * 8);
}

/** Word `index` of an op as an F32 scalar, rounded once. */
// @ts-ignore: decorator
@inline
export function scalar(op: usize, index: usize): f32 {
  return <f32>load<f64>(op + index * 8);
}
