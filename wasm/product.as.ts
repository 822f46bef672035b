// Products with several rows of x: a panel of weights is widened and packed once, then used for every row.

import { scratch } from './control.as';
import {
  GROUP_BYTES,
  INPUTS,
  PANEL,
  ROWS,
  TILE,
  X_PANEL,
  bias,
  continues,
  inputBegin,
  listOutputRows,
  nextBlock,
  out,
  outBytes,
  outColumn,
  outputMajor,
  residual,
  rewind,
  x,
  xBytes,
} from './projection.as';
import { widen1, widen4 } from './widen.as';

/** Rows and outputs that the kernel holds in registers: 8 of 16 for sums, the rest for weights and products. */
const TILE_ROWS: i32 = 4;
const TILE_OUTPUTS: i32 = 8;
export const X_TILE_BYTES: usize = 2048;

/** Outputs `[first, first + count)`, at most 256, of rows `[row, row + rowCount)`, at most 256. */
export function productTile<W>(first: i32, count: i32, row: i32, rowCount: i32): void {
  const groups = (count + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
  const tiles = (rowCount + TILE_ROWS - 1) / TILE_ROWS;
  if (!continues) clear(first, count, row, rowCount);
  if (outputMajor) listOutputRows(first, count, groups * TILE_OUTPUTS);
  rewind();
  let input = inputBegin;
  for (;;) {
    const inputs = nextBlock(outputMajor ? 0 : <usize>first * sizeof<W>());
    if (inputs == 0) break;
    packX(row, rowCount, inputs);
    if (outputMajor) packOutputMajor<W>(groups, inputs, <usize>(input - inputBegin) * sizeof<W>());
    else packInputMajor<W>(groups, inputs);
    for (let group = 0; group < groups; group++) {
      const panel = scratch() + PANEL + <usize>group * GROUP_BYTES;
      const begin = group * TILE_OUTPUTS;
      const width = min<i32>(TILE_OUTPUTS, count - begin);
      for (let tile = 0; tile < tiles; tile++) {
        multiply(panel, scratch() + X_PANEL + <usize>tile * X_TILE_BYTES, inputs);
        const height = min<i32>(TILE_ROWS, rowCount - tile * TILE_ROWS);
        addTile(first + begin, width, row + tile * TILE_ROWS, height);
      }
    }
    input += inputs;
  }
  finish(first, count, row, rowCount);
}

/** X_PANEL[tile][k][r] = x[row + 4 tile + r][k]; rows beyond the last are 0. */
export function packX(row: i32, rowCount: i32, inputs: i32): void {
  const offsets = scratch() + INPUTS;
  for (let r = 0; r < ((rowCount + 3) & ~3); r++) {
    let to = scratch() + X_PANEL + <usize>(r >> 2) * X_TILE_BYTES + (<usize>(r & 3) << 2);
    if (r < rowCount) {
      const from = x + <usize>(row + r) * xBytes;
      for (let k: usize = 0; k < <usize>inputs << 2; k += 4) {
        store<f32>(to, load<f32>(from + <usize>load<u32>(offsets + k)));
        to += 16;
      }
    } else {
      for (let k = 0; k < inputs; k++) {
        store<f32>(to, 0);
        to += 16;
      }
    }
  }
}

/** PANEL[group][k][c] = row[k][8 group + c]; reads up to 7 weights past the last output. */
function packInputMajor<W>(groups: i32, inputs: i32): void {
  for (let k = 0; k < inputs; k++) {
    let from = <usize>load<u32>(scratch() + ROWS + (<usize>k << 2));
    let to = scratch() + PANEL + (<usize>k << 5);
    for (let group = 0; group < groups; group++) {
      v128.store(to, widen4<W>(from));
      v128.store(to, widen4<W>(from + 4 * sizeof<W>()), 16);
      from += 8 * sizeof<W>();
      to += GROUP_BYTES;
    }
  }
}

/** PANEL[group][k][c] = row[8 group + c][k], the rows being those of the outputs. */
function packOutputMajor<W>(groups: i32, inputs: i32, rowOffset: usize): void {
  for (let quad = 0; quad < 2 * groups; quad++) {
    const rows = scratch() + ROWS + (<usize>quad << 4);
    let p0 = <usize>load<u32>(rows) + rowOffset;
    let p1 = <usize>load<u32>(rows, 4) + rowOffset;
    let p2 = <usize>load<u32>(rows, 8) + rowOffset;
    let p3 = <usize>load<u32>(rows, 12) + rowOffset;
    let to = scratch() + PANEL + <usize>(quad >> 1) * GROUP_BYTES + (<usize>(quad & 1) << 4);
    let k = 0;
    for (; k + 4 <= inputs; k += 4) {
      const w0 = widen4<W>(p0);
      const w1 = widen4<W>(p1);
      const w2 = widen4<W>(p2);
      const w3 = widen4<W>(p3);
      const a = v128.shuffle<f32>(w0, w1, 0, 4, 1, 5);
      const b = v128.shuffle<f32>(w2, w3, 0, 4, 1, 5);
      const c = v128.shuffle<f32>(w0, w1, 2, 6, 3, 7);
      const d = v128.shuffle<f32>(w2, w3, 2, 6, 3, 7);
      v128.store(to, v128.shuffle<f64>(a, b, 0, 2));
      v128.store(to, v128.shuffle<f64>(a, b, 1, 3), 32);
      v128.store(to, v128.shuffle<f64>(c, d, 0, 2), 64);
      v128.store(to, v128.shuffle<f64>(c, d, 1, 3), 96);
      p0 += 4 * sizeof<W>();
      p1 += 4 * sizeof<W>();
      p2 += 4 * sizeof<W>();
      p3 += 4 * sizeof<W>();
      to += 128;
    }
    for (; k < inputs; k++) {
      store<f32>(to, widen1<W>(p0));
      store<f32>(to, widen1<W>(p1), 4);
      store<f32>(to, widen1<W>(p2), 8);
      store<f32>(to, widen1<W>(p3), 12);
      p0 += sizeof<W>();
      p1 += sizeof<W>();
      p2 += sizeof<W>();
      p3 += sizeof<W>();
      to += 32;
    }
  }
}

/** TILE[r][c] = sum over k of x[k][r] * panel[k][c], from +0. */
export function multiply(panel: usize, xs: usize, inputs: i32): void {
  let a0 = f32x4.splat(0);
  let a1 = f32x4.splat(0);
  let b0 = f32x4.splat(0);
  let b1 = f32x4.splat(0);
  let c0 = f32x4.splat(0);
  let c1 = f32x4.splat(0);
  let d0 = f32x4.splat(0);
  let d1 = f32x4.splat(0);
  const end = panel + (<usize>(inputs & ~1) << 5);
  for (; panel < end; panel += 64) {
    let w0 = v128.load(panel);
    let w1 = v128.load(panel, 16);
    let f = v128.load32_splat(xs);
    a0 = f32x4.add(a0, f32x4.mul(f, w0));
    a1 = f32x4.add(a1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 4);
    b0 = f32x4.add(b0, f32x4.mul(f, w0));
    b1 = f32x4.add(b1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 8);
    c0 = f32x4.add(c0, f32x4.mul(f, w0));
    c1 = f32x4.add(c1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 12);
    d0 = f32x4.add(d0, f32x4.mul(f, w0));
    d1 = f32x4.add(d1, f32x4.mul(f, w1));
    w0 = v128.load(panel, 32);
    w1 = v128.load(panel, 48);
    f = v128.load32_splat(xs, 16);
    a0 = f32x4.add(a0, f32x4.mul(f, w0));
    a1 = f32x4.add(a1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 20);
    b0 = f32x4.add(b0, f32x4.mul(f, w0));
    b1 = f32x4.add(b1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 24);
    c0 = f32x4.add(c0, f32x4.mul(f, w0));
    c1 = f32x4.add(c1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 28);
    d0 = f32x4.add(d0, f32x4.mul(f, w0));
    d1 = f32x4.add(d1, f32x4.mul(f, w1));
    xs += 32;
  }
  if (inputs & 1) {
    const w0 = v128.load(panel);
    const w1 = v128.load(panel, 16);
    let f = v128.load32_splat(xs);
    a0 = f32x4.add(a0, f32x4.mul(f, w0));
    a1 = f32x4.add(a1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 4);
    b0 = f32x4.add(b0, f32x4.mul(f, w0));
    b1 = f32x4.add(b1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 8);
    c0 = f32x4.add(c0, f32x4.mul(f, w0));
    c1 = f32x4.add(c1, f32x4.mul(f, w1));
    f = v128.load32_splat(xs, 12);
    d0 = f32x4.add(d0, f32x4.mul(f, w0));
    d1 = f32x4.add(d1, f32x4.mul(f, w1));
  }
  const tile = scratch() + TILE;
  v128.store(tile, a0);
  v128.store(tile, a1, 16);
  v128.store(tile, b0, 32);
  v128.store(tile, b1, 48);
  v128.store(tile, c0, 64);
  v128.store(tile, c1, 80);
  v128.store(tile, d0, 96);
  v128.store(tile, d1, 112);
}

/** out += TILE for `width` outputs from `first` and `height` rows from `row`. */
export function addTile(first: i32, width: i32, row: i32, height: i32): void {
  let tile = scratch() + TILE;
  let to = out + <usize>row * outBytes;
  const adjacent = width == TILE_OUTPUTS && outColumn(first + 7) - outColumn(first) == 7;
  const start = outColumn(first) << 2;
  for (let r = 0; r < height; r++) {
    if (adjacent) {
      v128.store(to + start, f32x4.add(v128.load(to + start), v128.load(tile)));
      v128.store(to + start, f32x4.add(v128.load(to + start, 16), v128.load(tile, 16)), 16);
    } else {
      for (let c = 0; c < width; c++) {
        const at = to + (outColumn(first + c) << 2);
        store<f32>(at, load<f32>(at) + load<f32>(tile + (<usize>c << 2)));
      }
    }
    tile += 32;
    to += outBytes;
  }
}

export function clear(first: i32, count: i32, row: i32, rowCount: i32): void {
  for (let r = row; r < row + rowCount; r++) {
    const to = out + <usize>r * outBytes;
    for (let c = first; c < first + count; c++) store<f32>(to + (outColumn(c) << 2), 0);
  }
}

/** out = (out + bias) + residual */
export function finish(first: i32, count: i32, row: i32, rowCount: i32): void {
  if (bias == 0 && residual == 0) return;
  for (let r = row; r < row + rowCount; r++) {
    const offset = <usize>r * outBytes;
    for (let c = first; c < first + count; c++) {
      const column = outColumn(c) << 2;
      const at = out + offset + column;
      let value = load<f32>(at);
      if (bias != 0) value += load<f32>(bias + column);
      if (residual != 0) value += load<f32>(residual + offset + column);
      store<f32>(at, value);
    }
  }
}
