import { takeTicket, thread } from './control.as';
import { exp4 } from './elementary.as';
import { storeSome } from './elementwise.as';
import { BLOCK, address, integer, scalar } from './program.as';
import { widen4 } from './widen.as';

/** Causal attention; a piece of work is one head of one row, its scores lie in this thread's row of the scratch. */
export function attention(op: usize, opIndex: i32): void {
  if (integer(op, 6) == 0) run<f32>(op, opIndex);
  else run<u16>(op, opIndex);
}

function run<W>(op: usize, opIndex: i32): void {
  const rows = integer(op, 1);
  const heads = integer(op, 2);
  const positions = address(op, 3);
  const scale = scalar(op, 4);
  const query = address(op, 5);
  const keys = address(op, 7);
  const values = address(op, 8);
  const kvHeads = address(op, 10);
  const headDim = integer(op, 11);
  const capacity = address(op, 12);
  const scores = address(op, 13) + <usize>thread() * capacity * 4;
  const out = address(op, 14);
  const sharing = heads / <i32>kvHeads;
  const cacheBytes = <usize>headDim * capacity * sizeof<W>();
  for (;;) {
    const item = takeTicket(opIndex);
    if (item >= rows * heads) return;
    const row = item / heads;
    const head = (item - row * heads) / sharing;
    const slot = <usize>load<i32>(positions + (<usize>row << 3));
    const count = load<i32>(positions + (<usize>row << 3), 4) + 1;
    const cache = (slot * kvHeads + <usize>head) * cacheBytes;
    const offset = (<usize>item * <usize>headDim) << 2;
    score<W>(query + offset, keys + cache, headDim, capacity, count, scale, scores);
    const sum = exponentials(scores, count);
    weigh<W>(scores, values + cache, headDim, count, sum, out + offset);
  }
}

/** scores[p] = (q . k[p]) * scale, four vectors of adjacent positions at a time. */
function score<W>(
  query: usize,
  keys: usize,
  headDim: i32,
  capacity: usize,
  count: i32,
  scale: f32,
  scores: usize,
): void {
  const stride = capacity * sizeof<W>();
  const scales = f32x4.splat(scale);
  for (let p = 0; p < count; p += 16) {
    let t0 = f32x4.splat(0);
    let t1 = f32x4.splat(0);
    let t2 = f32x4.splat(0);
    let t3 = f32x4.splat(0);
    let key = keys + <usize>p * sizeof<W>();
    for (let begin = 0; begin < headDim; begin += BLOCK) {
      let s0 = f32x4.splat(0);
      let s1 = f32x4.splat(0);
      let s2 = f32x4.splat(0);
      let s3 = f32x4.splat(0);
      const end = min<i32>(headDim, begin + BLOCK);
      for (let d = begin; d < end; d++) {
        const q = v128.load32_splat(query + (<usize>d << 2));
        s0 = f32x4.add(s0, f32x4.mul(q, widen4<W>(key)));
        s1 = f32x4.add(s1, f32x4.mul(q, widen4<W>(key + 4 * sizeof<W>())));
        s2 = f32x4.add(s2, f32x4.mul(q, widen4<W>(key + 8 * sizeof<W>())));
        s3 = f32x4.add(s3, f32x4.mul(q, widen4<W>(key + 12 * sizeof<W>())));
        key += stride;
      }
      t0 = f32x4.add(t0, s0);
      t1 = f32x4.add(t1, s1);
      t2 = f32x4.add(t2, s2);
      t3 = f32x4.add(t3, s3);
    }
    const to = scores + (<usize>p << 2);
    const left = count - p;
    storeSome(to, f32x4.mul(t0, scales), left);
    if (left > 4) storeSome(to + 16, f32x4.mul(t1, scales), left - 4);
    if (left > 8) storeSome(to + 32, f32x4.mul(t2, scales), left - 8);
    if (left > 12) storeSome(to + 48, f32x4.mul(t3, scales), left - 12);
  }
}

/** scores = exp(scores - their maximum); returns the sum, in blocks of 128 positions. */
function exponentials(scores: usize, count: i32): f32 {
  let largest: f32 = -Infinity;
  for (let p = 0; p < count; p++) {
    const value = load<f32>(scores + (<usize>p << 2));
    if (value > largest) largest = value;
  }
  for (let p = 0; p < count; p += 4) {
    const at = scores + (<usize>p << 2);
    storeSome(at, exp4(f32x4.sub(v128.load(at), f32x4.splat(largest))), count - p);
  }
  let total: f32 = 0;
  for (let begin = 0; begin < count; begin += BLOCK) {
    const end = min<i32>(count, begin + BLOCK);
    let sum: f32 = 0;
    for (let p = begin; p < end; p++) sum += load<f32>(scores + (<usize>p << 2));
    total += sum;
  }
  return total;
}

/** out[d] = (sum over p of weights[p] * values[p][d]) / sum, in blocks of 128 positions. */
function weigh<W>(weights: usize, values: usize, headDim: i32, count: i32, sum: f32, out: usize): void {
  const stride = <usize>headDim * sizeof<W>();
  const sums = f32x4.splat(sum);
  for (let d = 0; d < headDim; d += 16) {
    let t0 = f32x4.splat(0);
    let t1 = f32x4.splat(0);
    let t2 = f32x4.splat(0);
    let t3 = f32x4.splat(0);
    let value = values + <usize>d * sizeof<W>();
    for (let begin = 0; begin < count; begin += BLOCK) {
      let s0 = f32x4.splat(0);
      let s1 = f32x4.splat(0);
      let s2 = f32x4.splat(0);
      let s3 = f32x4.splat(0);
      const end = min<i32>(count, begin + BLOCK);
      for (let p = begin; p < end; p++) {
        const w = v128.load32_splat(weights + (<usize>p << 2));
        s0 = f32x4.add(s0, f32x4.mul(w, widen4<W>(value)));
        s1 = f32x4.add(s1, f32x4.mul(w, widen4<W>(value + 4 * sizeof<W>())));
        s2 = f32x4.add(s2, f32x4.mul(w, widen4<W>(value + 8 * sizeof<W>())));
        s3 = f32x4.add(s3, f32x4.mul(w, widen4<W>(value + 12 * sizeof<W>())));
        value += stride;
      }
      t0 = f32x4.add(t0, s0);
      t1 = f32x4.add(t1, s1);
      t2 = f32x4.add(t2, s2);
      t3 = f32x4.add(t3, s3);
    }
    const to = out + (<usize>d << 2);
    const left = headDim - d;
    storeSome(to, f32x4.div(t0, sums), left);
    if (left > 4) storeSome(to + 16, f32x4.div(t1, sums), left - 4);
    if (left > 8) storeSome(to + 32, f32x4.div(t2, sums), left - 8);
    if (left > 12) storeSome(to + 48, f32x4.div(t3, sums), left - 12);
  }
}
