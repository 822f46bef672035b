// Stored types to F32, exactly, and F32 to F16. The type parameter names the stored type: f32, u16 for F16, i16 for
// BF16.

/** 2^112: what turns an F16 exponent, moved into place, into an F32 one. */
const SCALE: f32 = reinterpret<f32>(0x77800000);

/** Widens four adjacent stored numbers. */
// @ts-ignore: decorator
@inline
export function widen4<W>(at: usize): v128 {
  if (isFloat<W>()) return v128.load(at);
  if (isSigned<W>()) return i32x4.shl(v128.load_ext<u16>(at), 16);
  return widenHalves(v128.load_ext<i16>(at));
}

/**
 * Four sign-extended F16 numbers to F32. With sign, exponent and fraction in place the number is 2^112 too small;
 * the multiplication is exact, subnormals included. Exponent 31 then reads as 2^16 and above, which no finite F16
 * reaches, and gets the exponent of infinity; the fraction, and so a NaN's payload, stays.
 */
// @ts-ignore: decorator
@inline
export function widenHalves(halves: v128): v128 {
  const wide = f32x4.mul(
    v128.and(i32x4.shl(halves, 13), i32x4.splat(0x8fffe000)),
    f32x4.splat(SCALE),
  );
  const special = f32x4.ge(f32x4.abs(wide), f32x4.splat(65536.0));
  return v128.or(wide, v128.and(special, i32x4.splat(0x7f800000)));
}

/** Widens one stored number. */
// @ts-ignore: decorator
@inline
export function widen1<W>(at: usize): f32 {
  if (isFloat<W>()) return load<f32>(at);
  if (isSigned<W>()) return reinterpret<f32>(<u32>load<u16>(at) << 16);
  return f32x4.extract_lane(widenHalves(i32x4.splat(<i32>load<i16>(at))), 0);
}

/** Widens one number of a type known at run time only. */
export function widenOne(type: i32, at: usize): f32 {
  if (type == 0) return widen1<f32>(at);
  if (type == 1) return widen1<u16>(at);
  return widen1<i16>(at);
}

/**
 * F32 to F16, to nearest, ties to even; a NaN becomes a quiet NaN with the top bits of its payload. A finite value
 * of 65520 or more becomes infinity.
 */
export function narrow(value: f32): u16 {
  const bits = reinterpret<u32>(value);
  const sign = (bits >> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return <u16>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000) return <u16>(sign | 0x7c00); // 65520 and above, infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14 F16 counts in units of 2^-24, which is the distance of F32 numbers from 0.5 to 1.
    return <u16>(sign | (reinterpret<u32>(reinterpret<f32>(magnitude) + <f32>0.5) - 0x3f000000));
  }
  return <u16>(sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}
