// Products with one row of x: every weight is read once, so this is about reading at the speed of memory.

import { scratch } from './control.as';
import { addHalfRows, dotHalves, scaleFactors } from './halves.as';
import {
  FACTORS,
  INPUTS,
  ROWS,
  SUMS,
  TILE,
  TOTALS,
  bias,
  continues,
  inputBegin,
  listOutputRows,
  nextBlock,
  out,
  outColumn,
  residual,
  rewind,
  x,
} from './projection.as';
import { widen4 } from './widen.as';

/** Stored rows read side by side: enough that sums are loaded and stored rarely, few enough to prefetch. */
const SIDE_BY_SIDE: i32 = 8;

/** Outputs `[first, first + count)` of an input-major matrix; count at most 2048. */
export function inputMajorRange<W>(first: i32, count: i32): void {
  const sums = scratch() + SUMS;
  const totals = scratch() + TOTALS;
  const padded = (count + 15) & ~15;
  loadTotals(first, count, padded);
  rewind();
  for (;;) {
    const inputs = nextBlock(<usize>first * sizeof<W>());
    if (inputs == 0) break;
    loadFactors(inputs);
    memory.fill(sums, 0, <usize>padded << 2);
    let done = false;
    if (isInteger<W>() && !isSigned<W>()) {
      done = scaleFactors(inputs) && addHalfRows(inputs, sums, padded);
      if (!done) memory.fill(sums, 0, <usize>padded << 2);
    }
    for (let k = done ? inputs : 0; k < inputs; k += SIDE_BY_SIDE) {
      const offset = <usize>k << 2;
      addRows<W>(
        scratch() + ROWS + offset,
        scratch() + FACTORS + offset,
        min<i32>(SIDE_BY_SIDE, inputs - k),
        sums,
        padded,
      );
    }
    for (let c: usize = 0; c < <usize>padded << 2; c += 16) {
      v128.store(totals + c, f32x4.add(v128.load(totals + c), v128.load(sums + c)));
    }
  }
  finish(first, count);
}

/** sums[c] += x[k] * row[k][c] for k ascending; reads up to 15 weights past the last column. */
function addRows<W>(rows: usize, factors: usize, count: i32, sums: usize, columns: i32): void {
  const end = rows + (<usize>count << 2);
  let offset: usize = 0;
  for (let c = 0; c < columns; c += 16) {
    let s0 = v128.load(sums);
    let s1 = v128.load(sums, 16);
    let s2 = v128.load(sums, 32);
    let s3 = v128.load(sums, 48);
    let factor = factors;
    for (let row = rows; row < end; row += 4) {
      const at = <usize>load<u32>(row) + offset;
      const f = v128.load32_splat(factor);
      s0 = f32x4.add(s0, f32x4.mul(f, widen4<W>(at)));
      s1 = f32x4.add(s1, f32x4.mul(f, widen4<W>(at + 4 * sizeof<W>())));
      s2 = f32x4.add(s2, f32x4.mul(f, widen4<W>(at + 8 * sizeof<W>())));
      s3 = f32x4.add(s3, f32x4.mul(f, widen4<W>(at + 12 * sizeof<W>())));
      factor += 4;
    }
    v128.store(sums, s0);
    v128.store(sums, s1, 16);
    v128.store(sums, s2, 32);
    v128.store(sums, s3, 48);
    sums += 64;
    offset += 16 * sizeof<W>();
  }
}

function loadFactors(count: i32): void {
  const factors = scratch() + FACTORS;
  const inputs = scratch() + INPUTS;
  for (let k: usize = 0; k < <usize>count << 2; k += 4) {
    store<f32>(factors + k, load<f32>(x + <usize>load<u32>(inputs + k)));
  }
}

/** Outputs `[first, first + count)` of an output-major matrix, eight at a time; count at most 2048. */
export function outputMajorRange<W>(first: i32, count: i32): void {
  const totals = scratch() + TOTALS;
  loadTotals(first, count, (count + 7) & ~7);
  const tile = scratch() + TILE;
  for (let k = 0; k < count; k += 8) {
    listOutputRows(first + k, min<i32>(8, count - k), 8);
    const total = totals + (<usize>k << 2);
    let low = v128.load(total);
    let high = v128.load(total, 16);
    rewind();
    let input = inputBegin;
    for (;;) {
      const inputs = nextBlock(0);
      if (inputs == 0) break;
      const at = x + (<usize>input << 2);
      const offset = <usize>(input - inputBegin) * sizeof<W>();
      memory.fill(tile, 0, 32);
      let done = 0;
      if (isInteger<W>() && !isSigned<W>()) {
        loadFactors(inputs);
        if (scaleFactors(inputs) && dotHalves(offset, inputs)) done = inputs & ~7;
        else memory.fill(tile, 0, 32);
      }
      if (done < inputs) {
        dots<W>(at + (<usize>done << 2), offset + <usize>done * sizeof<W>(), inputs - done);
      }
      low = f32x4.add(low, v128.load(tile));
      high = f32x4.add(high, v128.load(tile, 16));
      input += inputs;
    }
    v128.store(total, low);
    v128.store(total, high, 16);
  }
  finish(first, count);
}

/** TILE[j] += x[i] * row[j][i] for i ascending, for the eight rows in ROWS; lanes are outputs. */
function dots<W>(x: usize, rowOffset: usize, count: i32): void {
  const rows = scratch() + ROWS;
  let p0 = <usize>load<u32>(rows) + rowOffset;
  let p1 = <usize>load<u32>(rows, 4) + rowOffset;
  let p2 = <usize>load<u32>(rows, 8) + rowOffset;
  let p3 = <usize>load<u32>(rows, 12) + rowOffset;
  let p4 = <usize>load<u32>(rows, 16) + rowOffset;
  let p5 = <usize>load<u32>(rows, 20) + rowOffset;
  let p6 = <usize>load<u32>(rows, 24) + rowOffset;
  let p7 = <usize>load<u32>(rows, 28) + rowOffset;
  let low = v128.load(scratch() + TILE);
  let high = v128.load(scratch() + TILE, 16);
  for (let i = 0; i < count; i += 4) {
    const w0 = widen4<W>(p0);
    const w1 = widen4<W>(p1);
    const w2 = widen4<W>(p2);
    const w3 = widen4<W>(p3);
    const w4 = widen4<W>(p4);
    const w5 = widen4<W>(p5);
    const w6 = widen4<W>(p6);
    const w7 = widen4<W>(p7);
    const a = v128.shuffle<f32>(w0, w1, 0, 4, 1, 5);
    const b = v128.shuffle<f32>(w2, w3, 0, 4, 1, 5);
    const c = v128.shuffle<f32>(w4, w5, 0, 4, 1, 5);
    const d = v128.shuffle<f32>(w6, w7, 0, 4, 1, 5);
    let f = v128.load32_splat(x);
    low = f32x4.add(low, f32x4.mul(f, v128.shuffle<f64>(a, b, 0, 2)));
    high = f32x4.add(high, f32x4.mul(f, v128.shuffle<f64>(c, d, 0, 2)));
    if (i + 1 == count) break;
    f = v128.load32_splat(x, 4);
    low = f32x4.add(low, f32x4.mul(f, v128.shuffle<f64>(a, b, 1, 3)));
    high = f32x4.add(high, f32x4.mul(f, v128.shuffle<f64>(c, d, 1, 3)));
    if (i + 2 == count) break;
    const g = v128.shuffle<f32>(w0, w1, 2, 6, 3, 7);
    const h = v128.shuffle<f32>(w2, w3, 2, 6, 3, 7);
    const j = v128.shuffle<f32>(w4, w5, 2, 6, 3, 7);
    const k = v128.shuffle<f32>(w6, w7, 2, 6, 3, 7);
    f = v128.load32_splat(x, 8);
    low = f32x4.add(low, f32x4.mul(f, v128.shuffle<f64>(g, h, 0, 2)));
    high = f32x4.add(high, f32x4.mul(f, v128.shuffle<f64>(j, k, 0, 2)));
    if (i + 3 == count) break;
    f = v128.load32_splat(x, 12);
    low = f32x4.add(low, f32x4.mul(f, v128.shuffle<f64>(g, h, 1, 3)));
    high = f32x4.add(high, f32x4.mul(f, v128.shuffle<f64>(j, k, 1, 3)));
    x += 16;
    p0 += 4 * sizeof<W>();
    p1 += 4 * sizeof<W>();
    p2 += 4 * sizeof<W>();
    p3 += 4 * sizeof<W>();
    p4 += 4 * sizeof<W>();
    p5 += 4 * sizeof<W>();
    p6 += 4 * sizeof<W>();
    p7 += 4 * sizeof<W>();
  }
  v128.store(scratch() + TILE, low);
  v128.store(scratch() + TILE, high, 16);
}

/** TOTALS of a range: what `out` holds where the op continues, else +0; padding is +0. */
function loadTotals(first: i32, count: i32, padded: i32): void {
  const totals = scratch() + TOTALS;
  memory.fill(totals, 0, <usize>padded << 2);
  if (!continues) return;
  for (let k = 0; k < count; k++) {
    store<f32>(totals + (<usize>k << 2), load<f32>(out + (outColumn(first + k) << 2)));
  }
}

/** out = (TOTALS + bias) + residual for a range. */
function finish(first: i32, count: i32): void {
  const totals = scratch() + TOTALS;
  for (let k = 0; k < count; k++) {
    const column = outColumn(first + k) << 2;
    let value = load<f32>(totals + (<usize>k << 2));
    if (bias != 0) value += load<f32>(bias + column);
    if (residual != 0) value += load<f32>(residual + column);
    store<f32>(out + column, value);
  }
}
