// Products of an input-major matrix with a few rows of x. Packing a panel would cost more than it saves, so weights
// are used where they lie: eight stored rows side by side, over a range of outputs, for four rows of x at a time.

import { scratch } from './control.as';
import { SCALE, anySpecial, first4, last4, lower, upper } from './halves.as';
import {
  INPUTS,
  PANEL,
  ROWS,
  X_PANEL,
  bias,
  continues,
  nextBlock,
  out,
  outBytes,
  residual,
  rewind,
  rows,
  x,
  xBytes,
} from './projection.as';
import { widen4 } from './widen.as';

/** Rows of x at most; their sums over a range lie in PANEL. */
export const FEW_ROWS: i32 = 16;
/** Outputs at most. A block of weights then stays in the second-level cache from one four rows to the next. */
export const FEW_OUTPUTS: i32 = 256;

const SIDE_BY_SIDE: i32 = 8;
/** Sums of four rows: [4, outputs, padded to 8]. */
const ROW_BYTES: usize = <usize>FEW_OUTPUTS << 2;
const X_TILE_BYTES: usize = 2048;

/** Outputs `[first, first + count)` of all rows. */
export function fewRows<W>(first: i32, count: i32): void {
  const tiles = (rows + 3) >> 2;
  const totals = scratch() + PANEL + <usize>FEW_ROWS * ROW_BYTES;
  for (let r = 0; r < rows; r++) {
    const total = totals + <usize>r * ROW_BYTES;
    if (continues) memory.copy(total, place(out, first, r), <usize>count << 2);
    else memory.fill(total, 0, <usize>count << 2);
  }
  rewind();
  for (;;) {
    const inputs = nextBlock(<usize>first * sizeof<W>());
    if (inputs == 0) break;
    packX(inputs);
    for (let tile = 0; tile < tiles; tile++) {
      const sums = scratch() + PANEL + <usize>tile * 4 * ROW_BYTES;
      const xs = scratch() + X_PANEL + <usize>tile * X_TILE_BYTES;
      memory.fill(sums, 0, 4 * ROW_BYTES);
      let done = false;
      if (isInteger<W>() && !isSigned<W>()) {
        done = scaleTile(xs, inputs) && addHalfBlock(inputs, sums, count);
        if (!done) memory.fill(sums, 0, 4 * ROW_BYTES);
      }
      for (let k = done ? inputs : 0; k < inputs; k += SIDE_BY_SIDE) {
        const list = scratch() + ROWS + (<usize>k << 2);
        addRows<W>(list, min<i32>(SIDE_BY_SIDE, inputs - k), xs + (<usize>k << 4), sums, count);
      }
      const height = min<i32>(4, rows - 4 * tile);
      for (let r = 0; r < height; r++) {
        const sum = sums + <usize>r * ROW_BYTES;
        const total = totals + <usize>(4 * tile + r) * ROW_BYTES;
        for (let c: usize = 0; c < <usize>count << 2; c += 16) {
          v128.store(total + c, f32x4.add(v128.load(total + c), v128.load(sum + c)));
        }
      }
    }
  }
  for (let r = 0; r < rows; r++) finish(totals + <usize>r * ROW_BYTES, first, count, r);
}

/** Where output `first` of row `row` lies in a matrix shaped as `out`. */
// @ts-ignore: decorator
@inline
function place(base: usize, first: i32, row: i32): usize {
  return base + <usize>row * outBytes + (<usize>first << 2);
}

/** X_PANEL[tile][k][r] = x[4 tile + r][k]; rows beyond the last repeat it. */
function packX(inputs: i32): void {
  const offsets = scratch() + INPUTS;
  for (let r = 0; r < ((rows + 3) & ~3); r++) {
    const from = x + <usize>min<i32>(r, rows - 1) * xBytes;
    let to = scratch() + X_PANEL + <usize>(r >> 2) * X_TILE_BYTES + (<usize>(r & 3) << 2);
    for (let k: usize = 0; k < <usize>inputs << 2; k += 4) {
      store<f32>(to, load<f32>(from + <usize>load<u32>(offsets + k)));
      to += 16;
    }
  }
}

/** sums[r][c] += x[k][r] * row[k][c] for k ascending; reads up to 7 weights past the last column. */
function addRows<W>(list: usize, count: i32, xs: usize, sums: usize, columns: i32): void {
  const end = list + (<usize>count << 2);
  let offset: usize = 0;
  for (let c = 0; c < columns; c += 8) {
    let a0 = v128.load(sums);
    let a1 = v128.load(sums, 16);
    let b0 = v128.load(sums, ROW_BYTES);
    let b1 = v128.load(sums, ROW_BYTES + 16);
    let c0 = v128.load(sums, 2 * ROW_BYTES);
    let c1 = v128.load(sums, 2 * ROW_BYTES + 16);
    let d0 = v128.load(sums, 3 * ROW_BYTES);
    let d1 = v128.load(sums, 3 * ROW_BYTES + 16);
    let factor = xs;
    for (let row = list; row < end; row += 4) {
      const at = <usize>load<u32>(row) + offset;
      const w0 = widen4<W>(at);
      const w1 = widen4<W>(at + 4 * sizeof<W>());
      let f = v128.load32_splat(factor);
      a0 = f32x4.add(a0, f32x4.mul(f, w0));
      a1 = f32x4.add(a1, f32x4.mul(f, w1));
      f = v128.load32_splat(factor, 4);
      b0 = f32x4.add(b0, f32x4.mul(f, w0));
      b1 = f32x4.add(b1, f32x4.mul(f, w1));
      f = v128.load32_splat(factor, 8);
      c0 = f32x4.add(c0, f32x4.mul(f, w0));
      c1 = f32x4.add(c1, f32x4.mul(f, w1));
      f = v128.load32_splat(factor, 12);
      d0 = f32x4.add(d0, f32x4.mul(f, w0));
      d1 = f32x4.add(d1, f32x4.mul(f, w1));
      factor += 16;
    }
    v128.store(sums, a0);
    v128.store(sums, a1, 16);
    v128.store(sums, b0, ROW_BYTES);
    v128.store(sums, b1, ROW_BYTES + 16);
    v128.store(sums, c0, 2 * ROW_BYTES);
    v128.store(sums, c1, 2 * ROW_BYTES + 16);
    v128.store(sums, d0, 3 * ROW_BYTES);
    v128.store(sums, d1, 3 * ROW_BYTES + 16);
    sums += 32;
    offset += 8 * sizeof<W>();
  }
}

/** Scaled copy of a tile of x, behind the tiles themselves. */
const SCALED_TILE: usize = X_PANEL + <usize>(FEW_ROWS >> 2) * X_TILE_BYTES;

/** The tile times 2^112, as halves.as.ts wants it; false where some |x| is not below 2^15. */
function scaleTile(xs: usize, inputs: i32): bool {
  const scaled = scratch() + SCALED_TILE;
  let fits = i32x4.splat(-1);
  for (let k: usize = 0; k < <usize>inputs << 4; k += 16) {
    const f = v128.load(xs + k);
    fits = v128.and(fits, f32x4.lt(f32x4.abs(f), f32x4.splat(32768)));
    v128.store(scaled + k, f32x4.mul(f, f32x4.splat(SCALE)));
  }
  return i32x4.all_true(fits);
}

/** A whole block of `addRows` for F16; false where a weight is infinite or NaN, the sums are then of no use. */
function addHalfBlock(inputs: i32, sums: usize, columns: i32): bool {
  let positive = i16x8.splat(0);
  let negative = i16x8.splat(0);
  for (let k = 0; k < inputs; k += SIDE_BY_SIDE) {
    const list = scratch() + ROWS + (<usize>k << 2);
    const end = list + (<usize>min<i32>(SIDE_BY_SIDE, inputs - k) << 2);
    let sum = sums;
    let offset: usize = 0;
    for (let c = 0; c < columns; c += 8) {
      let a0 = v128.load(sum);
      let a1 = v128.load(sum, 16);
      let b0 = v128.load(sum, ROW_BYTES);
      let b1 = v128.load(sum, ROW_BYTES + 16);
      let c0 = v128.load(sum, 2 * ROW_BYTES);
      let c1 = v128.load(sum, 2 * ROW_BYTES + 16);
      let d0 = v128.load(sum, 3 * ROW_BYTES);
      let d1 = v128.load(sum, 3 * ROW_BYTES + 16);
      let factor = scratch() + SCALED_TILE + (<usize>k << 4);
      for (let row = list; row < end; row += 4) {
        const halves = v128.load(<usize>load<u32>(row) + offset);
        positive = i16x8.max_s(positive, halves);
        negative = i16x8.max_u(negative, halves);
        const high = upper(halves);
        const low = lower(halves);
        const w0 = first4(low, high);
        const w1 = last4(low, high);
        let f = v128.load32_splat(factor);
        a0 = f32x4.add(a0, f32x4.mul(f, w0));
        a1 = f32x4.add(a1, f32x4.mul(f, w1));
        f = v128.load32_splat(factor, 4);
        b0 = f32x4.add(b0, f32x4.mul(f, w0));
        b1 = f32x4.add(b1, f32x4.mul(f, w1));
        f = v128.load32_splat(factor, 8);
        c0 = f32x4.add(c0, f32x4.mul(f, w0));
        c1 = f32x4.add(c1, f32x4.mul(f, w1));
        f = v128.load32_splat(factor, 12);
        d0 = f32x4.add(d0, f32x4.mul(f, w0));
        d1 = f32x4.add(d1, f32x4.mul(f, w1));
        factor += 16;
      }
      v128.store(sum, a0);
      v128.store(sum, a1, 16);
      v128.store(sum, b0, ROW_BYTES);
      v128.store(sum, b1, ROW_BYTES + 16);
      v128.store(sum, c0, 2 * ROW_BYTES);
      v128.store(sum, c1, 2 * ROW_BYTES + 16);
      v128.store(sum, d0, 3 * ROW_BYTES);
      v128.store(sum, d1, 3 * ROW_BYTES + 16);
      sum += 32;
      offset += 16;
    }
  }
  return !anySpecial(positive, negative);
}

/** out = (totals + bias) + residual for a range of one row. */
function finish(totals: usize, first: i32, count: i32, row: i32): void {
  const to = place(out, first, row);
  for (let c: usize = 0; c < <usize>count << 2; c += 4) {
    let value = load<f32>(totals + c);
    if (bias != 0) value += load<f32>(bias + (<usize>first << 2) + c);
    if (residual != 0) value += load<f32>(place(residual, first, row) + c);
    store<f32>(to + c, value);
  }
}
