import { storeSome } from './elementwise.as';
import { shareBegin, shareEnd } from './control.as';
import { BLOCK, address, integer, scalar } from './program.as';

export function norm(op: usize): void {
  const layer = integer(op, 1) == 0;
  const rows = integer(op, 2);
  const width = integer(op, 3);
  const epsilon = scalar(op, 4);
  const x = address(op, 5);
  const gamma = address(op, 6);
  const beta = address(op, 7);
  const out = address(op, 8);
  const end = shareEnd(rows, 1);
  const bytes = <usize>width << 2;
  for (let row = shareBegin(rows, 1); row < end; row++) {
    const from = x + <usize>row * bytes;
    const to = out + <usize>row * bytes;
    const mean = layer ? sum(from, width) / <f32>width : 0;
    const r = <f32>1 / sqrt<f32>(sumOfSquares(from, width, mean, layer) / <f32>width + epsilon);
    for (let i = 0; i < width; i += 4) {
      const offset = <usize>i << 2;
      let value = v128.load(from + offset);
      if (layer) value = f32x4.sub(value, f32x4.splat(mean));
      value = f32x4.mul(value, f32x4.splat(r));
      if (gamma != 0) value = f32x4.mul(value, v128.load(gamma + offset));
      if (beta != 0) value = f32x4.add(value, v128.load(beta + offset));
      storeSome(to + offset, value, width - i);
    }
  }
}

const BLOCK_BYTES: usize = <usize>BLOCK << 2;

/**
 * Sum over blocks of 128. A block is a chain of additions that wait for one another, so four blocks run side by
 * side; their sums are added in ascending order all the same.
 */
function sum(x: usize, width: i32): f32 {
  let total: f32 = 0;
  let i = 0;
  for (; i + 4 * BLOCK <= width; i += 4 * BLOCK) {
    const at = x + (<usize>i << 2);
    let a: f32 = 0;
    let b: f32 = 0;
    let c: f32 = 0;
    let d: f32 = 0;
    for (let k: usize = 0; k < BLOCK_BYTES; k += 4) {
      a += load<f32>(at + k);
      b += load<f32>(at + k, BLOCK_BYTES);
      c += load<f32>(at + k, 2 * BLOCK_BYTES);
      d += load<f32>(at + k, 3 * BLOCK_BYTES);
    }
    total = total + a + b + c + d;
  }
  for (; i < width; i += BLOCK) {
    const end = min<i32>(width, i + BLOCK);
    let a: f32 = 0;
    for (let k = i; k < end; k++) a += load<f32>(x + (<usize>k << 2));
    total += a;
  }
  return total;
}

/** Sum of (x - mean)², or of x² where there is no mean, in the order of `sum`. */
function sumOfSquares(x: usize, width: i32, mean: f32, centred: bool): f32 {
  // x - 0 is x for every x but a signalling NaN, so one loop serves both.
  const m: f32 = centred ? mean : 0;
  let total: f32 = 0;
  let i = 0;
  for (; i + 4 * BLOCK <= width; i += 4 * BLOCK) {
    const at = x + (<usize>i << 2);
    let a: f32 = 0;
    let b: f32 = 0;
    let c: f32 = 0;
    let d: f32 = 0;
    for (let k: usize = 0; k < BLOCK_BYTES; k += 4) {
      const p = load<f32>(at + k) - m;
      const q = load<f32>(at + k, BLOCK_BYTES) - m;
      const r = load<f32>(at + k, 2 * BLOCK_BYTES) - m;
      const s = load<f32>(at + k, 3 * BLOCK_BYTES) - m;
      a += p * p;
      b += q * q;
      c += r * r;
      d += s * s;
    }
    total = total + a + b + c + d;
  }
  for (; i < width; i += BLOCK) {
    const end = min<i32>(width, i + BLOCK);
    let a: f32 = 0;
    for (let k = i; k < end; k++) {
      const p = load<f32>(x + (<usize>k << 2)) - m;
      a += p * p;
    }
    total += a;
  }
  return total;
}
