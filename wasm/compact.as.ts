import { barrier, shareBegin, shareEnd, thread, threads } from './control.as';
import { address, integer } from './program.as';

/** Neurons looked at together: one cache line of each row. */
const GROUP: i32 = 16;

/** Words of the shared area in which the threads tell one another how many active neurons they found. */
const COUNTS: usize = 2048;

/**
 * Every thread counts the active neurons of its own range, then, knowing the counts before it, writes them. The
 * second look costs less than a place to keep the first one's answer.
 */
export function compact(op: usize): void {
  const rows = integer(op, 1);
  const width = integer(op, 2);
  const x = address(op, 3);
  const active = address(op, 4);
  const begin = shareBegin(width, GROUP);
  const end = shareEnd(width, GROUP);
  let found = 0;
  for (let i = begin; i < end; i += GROUP) {
    found += popcnt<i32>(activeIn(x + (<usize>i << 2), rows, width, end - i));
  }
  atomic.store<i32>(COUNTS + (<usize>thread() << 2), found);
  barrier();
  let before = 0;
  let total = 0;
  for (let t = 0; t < threads(); t++) {
    const count = atomic.load<i32>(COUNTS + (<usize>t << 2));
    if (t < thread()) before += count;
    total += count;
  }
  if (thread() == 0) store<u32>(active, total);
  let at = active + 4 + (<usize>before << 2);
  for (let i = begin; i < end; i += GROUP) {
    let mask = activeIn(x + (<usize>i << 2), rows, width, end - i);
    while (mask != 0) {
      store<u32>(at, i + ctz<i32>(mask));
      at += 4;
      mask &= mask - 1;
    }
  }
}

/** Bit k is set where some row holds a number other than 0 at `x + 4 k`, for k below `count` and 16. */
function activeIn(x: usize, rows: i32, width: i32, count: i32): i32 {
  const zero = f32x4.splat(0);
  const wanted = count >= GROUP ? 0xffff : (1 << count) - 1;
  let mask = 0;
  let at = x;
  for (let row = 0; row < rows; row++) {
    mask |=
      i32x4.bitmask(f32x4.ne(v128.load(at), zero)) |
      (i32x4.bitmask(f32x4.ne(v128.load(at, 16), zero)) << 4) |
      (i32x4.bitmask(f32x4.ne(v128.load(at, 32), zero)) << 8) |
      (i32x4.bitmask(f32x4.ne(v128.load(at, 48), zero)) << 12);
    if ((mask & wanted) == wanted) break;
    at += <usize>width << 2;
  }
  return mask & wanted;
}
