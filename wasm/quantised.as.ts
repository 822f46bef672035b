// quantised-linear: a word holds the codes of 4 or 8 consecutive inputs of one output (8 or 4 bits, two's complement);
// a weight is its code times a BF16 scale, exactly. The type parameter names the code: i8, or i16 for 4 bits.

import { scratch, takeTicket, threads } from './control.as';
import { X_TILE_BYTES, addTile, clear, finish, multiply, packX } from './product.as';
import { integer } from './program.as';
import {
  GROUP_BYTES,
  PANEL,
  SUMS,
  TOTALS,
  X_PANEL,
  bias,
  describeQuantised,
  matrix,
  nextBlock,
  out,
  outputs,
  residual,
  rewind,
  rows,
  scales,
  x,
} from './projection.as';

export function quantisedLinear(op: usize, opIndex: i32): void {
  describeQuantised(op);
  if (integer(op, 5) == 8) run<i8>(opIndex);
  else run<i16>(opIndex);
}

// @ts-ignore: decorator
@inline
function bits<Q>(): i32 {
  return sizeof<Q>() == 1 ? 8 : 4;
}

// @ts-ignore: decorator
@inline
function perWord<Q>(): i32 {
  return 32 / bits<Q>();
}

/** Scales of the inputs of a word row: q8 has one for all inputs of an output, q4 one for every 32. */
// @ts-ignore: decorator
@inline
function scalesOf<Q>(word: i32): usize {
  return sizeof<Q>() == 1 ? scales : scales + (<usize>(word >> 2) * outputs << 1);
}

function run<Q>(opIndex: i32): void {
  const share = (outputs + threads() - 1) / threads();
  const width = max<i32>(16, min<i32>(rows == 1 ? 2048 : 256, (share + 15) & ~15));
  const pieces = (outputs + width - 1) / width;
  const chunks = (rows + 255) / 256;
  for (;;) {
    const ticket = takeTicket(opIndex);
    if (ticket >= pieces * chunks) return;
    const first = (ticket / chunks) * width;
    const count = min<i32>(width, outputs - first);
    const row = (ticket % chunks) * 256;
    if (rows == 1) oneRow<Q>(first, count);
    else tile<Q>(first, count, row, min<i32>(256, rows - row));
  }
}

/** Outputs `[first, first + count)` of one row; reads up to 7 words past the last. */
function oneRow<Q>(first: i32, count: i32): void {
  const sums = scratch() + SUMS;
  const totals = scratch() + TOTALS;
  const padded = <usize>((count + 7) & ~7) << 2;
  memory.fill(totals, 0, padded);
  rewind();
  let input = 0;
  for (;;) {
    const inputs = nextBlock(0);
    if (inputs == 0) break;
    memory.fill(sums, 0, padded);
    // Eight inputs at a time: two words, or one.
    for (let k = 0; k < inputs; k += 8) addEight<Q>(first, count, input + k, min<i32>(8, inputs - k));
    for (let c: usize = 0; c < padded; c += 16) {
      v128.store(totals + c, f32x4.add(v128.load(totals + c), v128.load(sums + c)));
    }
    input += inputs;
  }
  for (let k = 0; k < count; k++) {
    const column = <usize>(first + k) << 2;
    let value = load<f32>(totals + (<usize>k << 2));
    if (bias != 0) value += load<f32>(bias + column);
    if (residual != 0) value += load<f32>(residual + column);
    store<f32>(out + column, value);
  }
}

/** SUMS[c] += x[k] * weight[k][c] for up to eight inputs, ascending, from a whole number of words on. */
function addEight<Q>(first: i32, count: i32, input: i32, inputs: i32): void {
  let sum = scratch() + SUMS;
  const stride = <usize>outputs << 2;
  const word = input / perWord<Q>();
  let codes = matrix + <usize>word * stride + (<usize>first << 2);
  let scale = scalesOf<Q>(word) + (<usize>first << 1);
  const xs = x + (<usize>input << 2);
  for (let c = 0; c < count; c += 8) {
    let s0 = v128.load(sum);
    let s1 = v128.load(sum, 16);
    const scale0 = i32x4.shl(v128.load_ext<u16>(scale), 16);
    const scale1 = i32x4.shl(v128.load_ext<u16>(scale, 8), 16);
    let at = codes;
    let factor = xs;
    for (let k = 0; k < inputs; at += stride) {
      const w0 = v128.load(at);
      const w1 = v128.load(at, 16);
      const end = min<i32>(inputs, k + perWord<Q>());
      for (let up = 32 - bits<Q>(); k < end; k++) {
        const f = v128.load32_splat(factor);
        s0 = f32x4.add(s0, f32x4.mul(f, weights<Q>(w0, up, scale0)));
        s1 = f32x4.add(s1, f32x4.mul(f, weights<Q>(w1, up, scale1)));
        factor += 4;
        up -= bits<Q>();
      }
    }
    v128.store(sum, s0);
    v128.store(sum, s1, 16);
    sum += 32;
    codes += 32;
    scale += 16;
  }
}

// @ts-ignore: decorator
@inline
function weights<Q>(words: v128, up: i32, scale: v128): v128 {
  return f32x4.mul(f32x4.convert_i32x4_s(i32x4.shr_s(i32x4.shl(words, up), 32 - bits<Q>())), scale);
}

/** Outputs `[first, first + count)`, at most 256, of rows `[row, row + rowCount)`, at most 256. */
function tile<Q>(first: i32, count: i32, row: i32, rowCount: i32): void {
  const groups = (count + 7) >> 3;
  const tiles = (rowCount + 3) >> 2;
  clear(first, count, row, rowCount);
  rewind();
  let input = 0;
  for (;;) {
    const inputs = nextBlock(0);
    if (inputs == 0) break;
    packX(row, rowCount, inputs);
    for (let group = 0; group < groups; group++) {
      const panel = scratch() + PANEL + <usize>group * GROUP_BYTES;
      pack<Q>(panel, first + 8 * group, input, inputs);
      for (let t = 0; t < tiles; t++) {
        multiply(panel, scratch() + X_PANEL + <usize>t * X_TILE_BYTES, inputs);
        addTile(first + 8 * group, min<i32>(8, count - 8 * group), row + 4 * t, min<i32>(4, rowCount - 4 * t));
      }
    }
    input += inputs;
  }
  finish(first, count, row, rowCount);
}

/** panel[k][c] = weight of input `input + k` to output `first + c`, for eight outputs. */
function pack<Q>(panel: usize, first: i32, input: i32, inputs: i32): void {
  let to = panel;
  for (let k = 0; k < inputs; k++) {
    const word = (input + k) / perWord<Q>();
    const up = 32 - bits<Q>() * (1 + ((input + k) & (perWord<Q>() - 1)));
    const codes = matrix + ((<usize>word * outputs + first) << 2);
    const scale = scalesOf<Q>(word) + (<usize>first << 1);
    v128.store(to, weights<Q>(v128.load(codes), up, i32x4.shl(v128.load_ext<u16>(scale), 16)));
    v128.store(to, weights<Q>(v128.load(codes, 16), up, i32x4.shl(v128.load_ext<u16>(scale, 8), 16)), 16);
    to += 32;
  }
}
