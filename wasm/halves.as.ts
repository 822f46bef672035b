// F16 weights at the speed of memory. An F16 number whose bits are moved into an F32's places reads 2^112 too small;
// scaling it back costs a multiplication a weight, scaling x up instead costs nothing. Both are exact, so the product
// is rounded once, to the same bits. Two cases do not allow it and go the plain way: an x of 2^15 or more, which
// would overflow, and weights that are infinite or NaN, which the moved bits read as numbers.

import { scratch } from './control.as';
import { FACTORS, ROWS, SCALED, TILE } from './projection.as';

/** 2^112 */
export const SCALE: f32 = reinterpret<f32>(0x77800000);

const SIDE_BY_SIDE: i32 = 8;

/** SCALED = FACTORS * 2^112; false where some |x| is not below 2^15. */
export function scaleFactors(count: i32): bool {
  const factors = scratch() + FACTORS;
  const scaled = scratch() + SCALED;
  let fits = i32x4.splat(-1);
  const end = <usize>count << 2;
  // The last vector may hold what an earlier block left; a large number there only costs time.
  for (let k: usize = 0; k < end; k += 16) {
    const x = v128.load(factors + k);
    fits = v128.and(fits, f32x4.lt(f32x4.abs(x), f32x4.splat(32768)));
    v128.store(scaled + k, f32x4.mul(x, f32x4.splat(SCALE)));
  }
  return i32x4.all_true(fits);
}

/** Sign and exponent, and the upper fraction bits, of eight F16 numbers as the upper halves of F32 numbers. */
// @ts-ignore: decorator
@inline
export function upper(halves: v128): v128 {
  return v128.and(i16x8.shr_s(halves, 3), i16x8.splat(-0x7001));
}

/** The lower halves. */
// @ts-ignore: decorator
@inline
export function lower(halves: v128): v128 {
  return i16x8.shl(halves, 13);
}

// @ts-ignore: decorator
@inline
export function first4(low: v128, high: v128): v128 {
  return v128.shuffle<i16>(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
}

// @ts-ignore: decorator
@inline
export function last4(low: v128, high: v128): v128 {
  return v128.shuffle<i16>(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
}

/** From the largest halves as signed and as unsigned numbers: whether an infinity or NaN was among them. */
// @ts-ignore: decorator
@inline
export function anySpecial(largestSigned: v128, largestUnsigned: v128): bool {
  return v128.any_true(
    v128.or(
      i16x8.ge_s(largestSigned, i16x8.splat(0x7c00)),
      i16x8.ge_u(largestUnsigned, i16x8.splat(-0x400)),
    ),
  );
}

/**
 * sums[c] += x[k] * row[k][c] for k ascending, from SCALED and ROWS; reads up to 15 weights past the last column.
 * False where a weight is infinite or NaN; the sums are then of no use.
 */
export function addHalfRows(count: i32, sums: usize, columns: i32): bool {
  let positive = i16x8.splat(0);
  let negative = i16x8.splat(0);
  for (let k = 0; k < count; k += SIDE_BY_SIDE) {
    const rows = scratch() + ROWS + (<usize>k << 2);
    const end = rows + (<usize>min<i32>(SIDE_BY_SIDE, count - k) << 2);
    let sum = sums;
    let offset: usize = 0;
    for (let c = 0; c < columns; c += 16) {
      let s0 = v128.load(sum);
      let s1 = v128.load(sum, 16);
      let s2 = v128.load(sum, 32);
      let s3 = v128.load(sum, 48);
      let factor = scratch() + SCALED + (<usize>k << 2);
      for (let row = rows; row < end; row += 4) {
        const at = <usize>load<u32>(row) + offset;
        const f = v128.load32_splat(factor);
        const v = v128.load(at);
        positive = i16x8.max_s(positive, v);
        negative = i16x8.max_u(negative, v);
        const a = upper(v);
        const b = lower(v);
        s0 = f32x4.add(s0, f32x4.mul(f, first4(b, a)));
        s1 = f32x4.add(s1, f32x4.mul(f, last4(b, a)));
        const w = v128.load(at, 16);
        positive = i16x8.max_s(positive, w);
        negative = i16x8.max_u(negative, w);
        const d = upper(w);
        const e = lower(w);
        s2 = f32x4.add(s2, f32x4.mul(f, first4(e, d)));
        s3 = f32x4.add(s3, f32x4.mul(f, last4(e, d)));
        factor += 4;
      }
      v128.store(sum, s0);
      v128.store(sum, s1, 16);
      v128.store(sum, s2, 32);
      v128.store(sum, s3, 48);
      sum += 64;
      offset += 32;
    }
  }
  return !anySpecial(positive, negative);
}

/**
 * TILE[j] += x[i] * row[j][i] for i ascending over the whole eights of one block, from SCALED and the eight rows in
 * ROWS. False where a weight is infinite or NaN; TILE is then of no use.
 */
export function dotHalves(rowOffset: usize, count: i32): bool {
  const rows = scratch() + ROWS;
  let p0 = <usize>load<u32>(rows) + rowOffset;
  let p1 = <usize>load<u32>(rows, 4) + rowOffset;
  let p2 = <usize>load<u32>(rows, 8) + rowOffset;
  let p3 = <usize>load<u32>(rows, 12) + rowOffset;
  let p4 = <usize>load<u32>(rows, 16) + rowOffset;
  let p5 = <usize>load<u32>(rows, 20) + rowOffset;
  let p6 = <usize>load<u32>(rows, 24) + rowOffset;
  let p7 = <usize>load<u32>(rows, 28) + rowOffset;
  const tile = scratch() + TILE;
  let x = scratch() + SCALED;
  // Two chains of additions, because one alone waits for itself most of the time.
  let sum = v128.load(tile);
  let other = v128.load(tile, 16);
  let positive = i16x8.splat(0);
  let negative = i16x8.splat(0);
  for (let i = 8; i <= count; i += 8) {
    const r0 = v128.load(p0);
    const r1 = v128.load(p1);
    const r2 = v128.load(p2);
    const r3 = v128.load(p3);
    positive = i16x8.max_s(i16x8.max_s(positive, i16x8.max_s(r0, r1)), i16x8.max_s(r2, r3));
    negative = i16x8.max_u(i16x8.max_u(negative, i16x8.max_u(r0, r1)), i16x8.max_u(r2, r3));
    // Inputs 0 to 3 of rows 0 and 1, of rows 2 and 3; then inputs 4 to 7.
    const a = first4(r0, r1);
    const b = first4(r2, r3);
    const c = last4(r0, r1);
    const d = last4(r2, r3);
    const r4 = v128.load(p4);
    const r5 = v128.load(p5);
    const r6 = v128.load(p6);
    const r7 = v128.load(p7);
    positive = i16x8.max_s(i16x8.max_s(positive, i16x8.max_s(r4, r5)), i16x8.max_s(r6, r7));
    negative = i16x8.max_u(i16x8.max_u(negative, i16x8.max_u(r4, r5)), i16x8.max_u(r6, r7));
    const e = first4(r4, r5);
    const g = first4(r6, r7);
    const h = last4(r4, r5);
    const j = last4(r6, r7);
    sum = addTwo(sum, x, v128.shuffle<i32>(a, b, 0, 4, 1, 5));
    other = addTwo(other, x, v128.shuffle<i32>(e, g, 0, 4, 1, 5));
    sum = addTwo(sum, x + 8, v128.shuffle<i32>(a, b, 2, 6, 3, 7));
    other = addTwo(other, x + 8, v128.shuffle<i32>(e, g, 2, 6, 3, 7));
    sum = addTwo(sum, x + 16, v128.shuffle<i32>(c, d, 0, 4, 1, 5));
    other = addTwo(other, x + 16, v128.shuffle<i32>(h, j, 0, 4, 1, 5));
    sum = addTwo(sum, x + 24, v128.shuffle<i32>(c, d, 2, 6, 3, 7));
    other = addTwo(other, x + 24, v128.shuffle<i32>(h, j, 2, 6, 3, 7));
    x += 32;
    p0 += 16;
    p1 += 16;
    p2 += 16;
    p3 += 16;
    p4 += 16;
    p5 += 16;
    p6 += 16;
    p7 += 16;
  }
  v128.store(tile, sum);
  v128.store(tile, other, 16);
  return !anySpecial(positive, negative);
}

/** Adds the products of two inputs with four outputs, eight halves in all. */
// @ts-ignore: decorator
@inline
function addTwo(sum: v128, x: usize, halves: v128): v128 {
  const high = upper(halves);
  const low = lower(halves);
  sum = f32x4.add(sum, f32x4.mul(v128.load32_splat(x), first4(low, high)));
  return f32x4.add(sum, f32x4.mul(v128.load32_splat(x, 4), last4(low, high)));
}
