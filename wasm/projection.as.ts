// The three ops that multiply by a matrix, brought to one description. A thread fills it for itself, once an op.

import { scratch } from './control.as';
import { BLOCK, address, integer } from './program.as';

// Parts of a thread's scratch; wasm-layout.ts states the whole.
export const ROWS: usize = 0; // u32 [256]: addresses of stored rows
export const INPUTS: usize = 1024; // u32 [128]: byte offsets into a row of x
export const FACTORS: usize = 1536; // F32 [128]: numbers of x
export const TILE: usize = 2048; // F32 [4, 8] or [8]: results of a kernel
export const SCALED: usize = 2560; // F32 [128]: FACTORS times 2^112
export const SUMS: usize = 4096; // F32 [2048 + 16]: block sums of a range of outputs
export const TOTALS: usize = 16384; // F32 [2048 + 16]: totals of a range of outputs
export const PANEL: usize = 32768; // F32 [outputs / 8] groups of [128, 8], at most 256 outputs
/** Bytes from group to group: a line more than the group, else all groups would share the same few cache sets. */
export const GROUP_BYTES: usize = 4096 + 64;
export const X_PANEL: usize = PANEL + 32 * GROUP_BYTES; // F32 [rows / 4, 128, 4], at most 256 rows

export let rows: i32 = 0; // T
export let x: usize = 0;
export let xBytes: usize = 0; // of one row of x
export let outputs: i32 = 0; // dense outputs, or listed ones
export let matrix: usize = 0;
export let type: i32 = 0;
export let outputMajor: bool = false;
export let rowBytes: usize = 0; // from one stored row to the next
export let elementBytes: usize = 4;
export let out: usize = 0; // column 0 of this op's outputs in row 0
export let outBytes: usize = 0; // of one row of out
export let continues: bool = false;
export let bias: usize = 0;
export let residual: usize = 0; // as `out`
export let inputBegin: i32 = 0; // dense inputs
export let inputEnd: i32 = 0;

/** U32 indices of the listed neurons and where their rows lie; 0 for a dense op, or for rows at the neuron's index. */
export let list: usize = 0;
export let slots: usize = 0;

/** BF16 scales of a quantised matrix, whose codes `matrix` holds. */
export let scales: usize = 0;

let cursor: i32 = 0; // input, or list position, that the next block starts with
let listBegin: i32 = 0;
let listEnd: i32 = 0;

function setMatrix(op: usize, word: usize): void {
  matrix = address(op, word);
  type = integer(op, word + 1);
  outputMajor = integer(op, word + 2) == 1;
  elementBytes = type == 0 ? 4 : 2;
  rowBytes = address(op, word + 3) * elementBytes;
}

function setList(op: usize): void {
  const active = address(op, 4);
  const count = <i32>load<u32>(active);
  listBegin = integer(op, 5);
  listEnd = integer(op, 6);
  if (listEnd < 0 || listEnd > count) listEnd = count;
  if (listBegin > listEnd) listBegin = listEnd;
  list = active + 4;
  slots = address(op, 7);
}

export function describeLinear(op: usize): void {
  rows = integer(op, 1);
  x = address(op, 2);
  xBytes = address(op, 3) << 2;
  inputBegin = integer(op, 4);
  inputEnd = integer(op, 5);
  outputs = integer(op, 6);
  setMatrix(op, 7);
  const offset = address(op, 13) << 2;
  out = address(op, 11) + offset;
  outBytes = address(op, 12) << 2;
  continues = integer(op, 14) == 1;
  bias = address(op, 15);
  residual = address(op, 16);
  if (residual != 0) residual += offset;
  list = 0;
  slots = 0;
}

export function describeQuantised(op: usize): void {
  rows = integer(op, 1);
  x = address(op, 2);
  inputBegin = 0;
  inputEnd = integer(op, 3);
  xBytes = <usize>inputEnd << 2;
  outputs = integer(op, 4);
  matrix = address(op, 6);
  scales = address(op, 7);
  out = address(op, 8);
  outBytes = <usize>outputs << 2;
  bias = address(op, 9);
  residual = address(op, 10);
  outputMajor = false;
  continues = false;
  rowBytes = 0;
  list = 0;
  slots = 0;
}

export function describeActiveInputs(op: usize): void {
  rows = integer(op, 1);
  x = address(op, 2);
  xBytes = address(op, 3) << 2;
  setList(op);
  outputs = integer(op, 8);
  setMatrix(op, 9);
  out = address(op, 13);
  outBytes = <usize>outputs << 2;
  continues = integer(op, 14) == 1;
  bias = address(op, 15);
  residual = address(op, 16);
}

export function describeActiveOutputs(op: usize): void {
  rows = integer(op, 1);
  x = address(op, 2);
  inputBegin = 0;
  inputEnd = integer(op, 3);
  xBytes = <usize>inputEnd << 2;
  setList(op);
  setMatrix(op, 8);
  out = address(op, 12);
  outBytes = address(op, 13) << 2;
  continues = false;
  bias = address(op, 14);
  residual = 0;
  outputs = listEnd - listBegin;
  list += <usize>listBegin << 2;
  if (slots != 0) slots += <usize>listBegin << 2;
}

/** Column of `out`, and element of the bias, that output `index` of the op has. */
// @ts-ignore: decorator
@inline
export function outColumn(index: i32): usize {
  return outputMajor && list != 0 ? <usize>load<u32>(list + (<usize>index << 2)) : <usize>index;
}

/** Address of the stored row of listed neuron or dense row `index`. */
// @ts-ignore: decorator
@inline
function rowAddress(index: i32): usize {
  let row: usize = index;
  if (slots != 0) row = load<u32>(slots + (<usize>index << 2));
  else if (list != 0) row = load<u32>(list + (<usize>index << 2));
  return matrix + row * rowBytes;
}

/** Puts the addresses of the stored rows of `count` outputs from `first` into ROWS; up to `padded`, the last again. */
export function listOutputRows(first: i32, count: i32, padded: i32): void {
  const to = scratch() + ROWS;
  for (let k = 0; k < padded; k++) {
    store<u32>(to + (<usize>k << 2), <u32>rowAddress(first + min<i32>(k, count - 1)));
  }
}

export function rewind(): void {
  cursor = !outputMajor && list != 0 ? listBegin : inputBegin;
}

/**
 * Moves to the next block of inputs and returns how many of it take part, 0 after the last. INPUTS gets their byte
 * offsets in a row of x; for input-major matrices ROWS gets the addresses of their stored rows, `columnBytes` in.
 */
export function nextBlock(columnBytes: usize): i32 {
  const inputs = scratch() + INPUTS;
  const addresses = scratch() + ROWS;
  const first = cursor;
  let count = 0;
  if (!outputMajor && list != 0) {
    if (first >= listEnd) return 0;
    const block = load<u32>(list + (<usize>first << 2)) / <u32>BLOCK;
    for (; cursor < listEnd; cursor++) {
      const neuron = load<u32>(list + (<usize>cursor << 2));
      if (neuron / <u32>BLOCK != block) break;
      store<u32>(inputs + (<usize>count << 2), neuron << 2);
      store<u32>(addresses + (<usize>count << 2), <u32>(rowAddress(cursor) + columnBytes));
      count++;
    }
    return count;
  }
  if (first >= inputEnd) return 0;
  count = min<i32>(BLOCK - (first & (BLOCK - 1)), inputEnd - first);
  cursor += count;
  let row = matrix + <usize>(first - inputBegin) * rowBytes + columnBytes;
  for (let k = 0; k < count; k++) {
    store<u32>(inputs + (<usize>k << 2), <u32>(first + k) << 2);
    if (!outputMajor) store<u32>(addresses + (<usize>k << 2), <u32>row);
    row += rowBytes;
  }
  return count;
}
