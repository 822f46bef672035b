// Sums of 8-bit times 16-bit whole numbers, `count` a multiple of 32, and the codes of rows in fewer than 8 bits.

/** Products of two neighbours stay below 2^24: 2^7 of them fit a 32-bit lane, and lanes are emptied before. */
const EXACT_STRETCH: usize = 1024;

/** Four sums of pairs, of 8 codes. */
// @ts-ignore: decorator
@inline
function pairs(codes: usize, x: usize): v128 {
  return i32x4.dot_i16x8_s(v128.load_ext<i8>(codes), v128.load(x));
}

// @ts-ignore: decorator
@inline
function groupProducts(codes: usize, x: usize): v128 {
  return i32x4.add(
    i32x4.add(pairs(codes, x), pairs(codes + 8, x + 16)),
    i32x4.add(pairs(codes + 16, x + 32), pairs(codes + 24, x + 48)),
  );
}

// @ts-ignore: decorator
@inline
function widened(sums: v128): v128 {
  return i64x2.add(i64x2.extend_low_i32x4_s(sums), i64x2.extend_high_i32x4_s(sums));
}

// @ts-ignore: decorator
@inline
function total(sums: v128): i64 {
  return i64x2.extract_lane(sums, 0) + i64x2.extract_lane(sums, 1);
}

export function plainProduct(codes: usize, x: usize, count: usize): i64 {
  let sum = i64x2.splat(0);
  for (let begin: usize = 0; begin < count; begin += EXACT_STRETCH) {
    const end = min<usize>(begin + EXACT_STRETCH, count);
    let part = i32x4.splat(0);
    for (let i = begin; i < end; i += 32) part = i32x4.add(part, groupProducts(codes + i, x + (i << 1)));
    sum = i64x2.add(sum, widened(part));
  }
  return total(sum);
}

export function groupedProduct(codes: usize, scales: usize, x: usize, count: usize): i64 {
  let sum = i64x2.splat(0);
  for (let i: usize = 0; i < count; i += 32) {
    const part = groupProducts(codes + i, x + (i << 1));
    const scale = i32x4.splat(<i32>load<u8>(scales + (i >> 5)));
    sum = i64x2.add(
      sum,
      i64x2.add(i64x2.extmul_low_i32x4_s(part, scale), i64x2.extmul_high_i32x4_s(part, scale)),
    );
  }
  return total(sum);
}

/** See `packCodes` of src/checkpoint/low-bit-layout.ts. */
export function unpackRow(bits: i32, low: usize, high: usize, codes: usize, count: usize): void {
  const offset = i8x16.splat(<i8>(<i32>1 << (bits - 1)));
  const highBytes = <usize>((bits - 4) << 2);
  for (let i: usize = 0; i < count; i += 32, low += 16, high += highBytes) {
    const nibbles = v128.load(low);
    let first = v128.and(nibbles, i8x16.splat(15));
    let second = i8x16.shr_u(nibbles, 4);
    if (bits == 5) {
      const word = v128.load32_splat(high);
      first = v128.or(first, bitsOf(i8x16.swizzle(word, i8x16(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1))));
      second = v128.or(second, bitsOf(i8x16.swizzle(word, i8x16(2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3))));
    } else if (bits == 6) {
      const word = v128.load64_splat(high);
      const mask = i8x16.splat(48);
      // Values 0..7 take the lowest two bits of a byte, 8..15 the next, and so on; both end up as bits 4 and 5.
      first = v128.or(
        first,
        v128.and(v128.shuffle<i64>(i8x16.shl(word, 4), i8x16.shl(word, 2), 0, 2), mask),
      );
      second = v128.or(second, v128.and(v128.shuffle<i64>(word, i8x16.shr_u(word, 2), 0, 2), mask));
    }
    v128.store(codes + i, i8x16.sub(first, offset));
    v128.store(codes + i, i8x16.sub(second, offset), 16);
  }
}

/** 16 where bit (lane mod 8) of a lane is set. */
// @ts-ignore: decorator
@inline
function bitsOf(spread: v128): v128 {
  const bit = i8x16(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  return v128.and(i8x16.eq(v128.and(spread, bit), bit), i8x16.splat(16));
}
