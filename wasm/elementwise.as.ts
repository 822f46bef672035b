import { activate4 } from './elementary.as';
import { INDEX_OUT_OF_RANGE, KV_OVERFLOW, fail, shareBegin, shareEnd } from './control.as';
import { address, integer, scalar } from './program.as';
import { narrow, widenOne } from './widen.as';

/** Numbers of one share step: a cache line, so that no two threads store into one. */
const LINE: i32 = 16;

export function gather(op: usize, opIndex: i32): void {
  const rows = integer(op, 1);
  const columns = integer(op, 2);
  const table = address(op, 3);
  const tableRows = <u32>integer(op, 4);
  const type = integer(op, 5);
  const rowStride = address(op, 6);
  const columnStride = address(op, 7);
  const ids = address(op, 8);
  const out = address(op, 9);
  const size: usize = type == 0 ? 4 : 2;
  const begin = shareBegin(columns, LINE);
  const end = shareEnd(columns, LINE);
  for (let row = 0; row < rows; row++) {
    const id = load<u32>(ids + (<usize>row << 2));
    if (id >= tableRows) return fail(opIndex, INDEX_OUT_OF_RANGE);
    const source = table + <usize>id * rowStride * size;
    const target = out + <usize>row * <usize>columns * 4;
    for (let column = begin; column < end; column++) {
      const value = widenOne(type, source + <usize>column * columnStride * size);
      store<f32>(target + (<usize>column << 2), value);
    }
  }
}

/** Four numbers at `at`, of which only `count` are to be stored when that is less than four. */
// @ts-ignore: decorator
@inline
export function storeSome(at: usize, value: v128, count: i32): void {
  if (count >= 4) {
    v128.store(at, value);
    return;
  }
  store<f32>(at, f32x4.extract_lane(value, 0));
  if (count > 1) store<f32>(at, f32x4.extract_lane(value, 1), 4);
  if (count > 2) store<f32>(at, f32x4.extract_lane(value, 2), 8);
}

export function activate(op: usize): void {
  const count = integer(op, 1);
  const kind = integer(op, 2);
  const threshold = scalar(op, 3);
  const x = address(op, 4);
  const end = shareEnd(count, LINE);
  for (let i = shareBegin(count, LINE); i < end; i += 4) {
    const at = x + (<usize>i << 2);
    storeSome(at, activate4(kind, threshold, v128.load(at)), end - i);
  }
}

export function gatedProduct(op: usize): void {
  const count = integer(op, 1);
  const gate = address(op, 2);
  const up = address(op, 3);
  const zero = f32x4.splat(0);
  const end = shareEnd(count, LINE);
  for (let i = shareBegin(count, LINE); i < end; i += 4) {
    const at = gate + (<usize>i << 2);
    const left = v128.load(at);
    const product = f32x4.mul(left, v128.load(up + (<usize>i << 2)));
    const drop = v128.or(f32x4.eq(left, zero), f32x4.eq(product, zero));
    storeSome(at, v128.andnot(product, drop), end - i);
  }
}

export function add(op: usize): void {
  const count = integer(op, 1);
  const a = address(op, 2);
  const b = address(op, 3);
  const out = address(op, 4);
  const end = shareEnd(count, LINE);
  for (let i = shareBegin(count, LINE); i < end; i += 4) {
    const offset = <usize>i << 2;
    storeSome(out + offset, f32x4.add(v128.load(a + offset), v128.load(b + offset)), end - i);
  }
}

export function rope(op: usize): void {
  const rows = integer(op, 1);
  const heads = integer(op, 2);
  const headDim = address(op, 3);
  const half = integer(op, 4) >> 1;
  const positions = address(op, 5);
  const cosines = address(op, 6);
  const sines = address(op, 7);
  const x = address(op, 8);
  const end = shareEnd(rows * heads, 1);
  for (let item = shareBegin(rows * heads, 1); item < end; item++) {
    const position = <usize>load<i32>(positions + (<usize>(item / heads) << 3), 4);
    const table = position * <usize>half * 4;
    const first = x + <usize>item * headDim * 4;
    const second = first + (<usize>half << 2);
    for (let i: usize = 0; i < <usize>half << 2; i += 4) {
      const cosine = load<f32>(cosines + table + i);
      const sine = load<f32>(sines + table + i);
      const a = load<f32>(first + i);
      const b = load<f32>(second + i);
      store<f32>(first + i, a * cosine - b * sine);
      store<f32>(second + i, b * cosine + a * sine);
    }
  }
}

export function storeKv(op: usize, opIndex: i32): void {
  const rows = integer(op, 1);
  const positions = address(op, 2);
  const keys = address(op, 3);
  const values = address(op, 4);
  const half = integer(op, 5) == 1;
  const cachedKeys = address(op, 6);
  const cachedValues = address(op, 7);
  const kvHeads = address(op, 9);
  const headDim = address(op, 10);
  const capacity = address(op, 11);
  const width = <i32>(kvHeads * headDim);
  const end = shareEnd(rows * width, LINE);
  for (let item = shareBegin(rows * width, LINE); item < end; item++) {
    const row = item / width;
    const element = <usize>(item - row * width); // head * headDim + dimension
    const slot = <usize>load<i32>(positions + (<usize>row << 3));
    const position = <usize>load<i32>(positions + (<usize>row << 3), 4);
    const head = element / headDim;
    const dimension = element - head * headDim;
    const base = (slot * kvHeads + head) * headDim * capacity;
    const keyAt = base + dimension * capacity + position;
    const valueAt = base + position * headDim + dimension;
    const key = load<f32>(keys + (<usize>item << 2));
    const value = load<f32>(values + (<usize>item << 2));
    if (half) {
      if (overflows(key) || overflows(value)) fail(opIndex, KV_OVERFLOW);
      store<u16>(cachedKeys + keyAt * 2, narrow(key));
      store<u16>(cachedValues + valueAt * 2, narrow(value));
    } else {
      store<f32>(cachedKeys + keyAt * 4, key);
      store<f32>(cachedValues + valueAt * 4, value);
    }
  }
}

/** True for finite numbers that F16 rounds to infinity. */
// @ts-ignore: decorator
@inline
function overflows(value: f32): bool {
  const magnitude = abs<f32>(value);
  return magnitude >= 65520 && magnitude < Infinity;
}
