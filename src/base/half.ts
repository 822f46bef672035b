import type { StoredType } from './stored-type.js';

/**
 * Conversions between binary32 and the two 16-bit storage types: F16 (IEEE-754 binary16) and BF16 (the upper half of
 * a binary32). Widening is exact; narrowing rounds to nearest, ties to even. Every NaN becomes one quiet NaN.
 */

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

const f16Infinity = 0x7c00;
// 65520 lies halfway between the largest F16 and the next power of two; the tie goes up, to infinity.
const f16OverflowBits = 0x477ff000;
const f16SmallestNormalBits = 0x38800000; // 2^-14

let widened: Float32Array | null = null;

/** The value of every F16 encoding: one table look-up is several times faster than taking the bits apart. */
function f16Table(): Float32Array {
  if (widened !== null) return widened;
  widened = new Float32Array(65536);
  for (let half = 0; half < 65536; half++) {
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    let magnitude = (1024 + fraction) * 2 ** (exponent - 25);
    if (exponent === 0) magnitude = fraction * 2 ** -24;
    if (exponent === 31) magnitude = fraction === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
    widened[half] = half < 32768 ? magnitude : -magnitude;
  }
  return widened;
}

/** The value of an F16 given by its 16 bits. */
export function widenF16(half: number): number {
  return f16Table()[half & 0xffff]!;
}

/** The 16 bits of the F16 nearest to a binary32. */
export function narrowF16(value: number): number {
  float[0] = value;
  const encoding = bits[0]!;
  const sign = (encoding >>> 16) & 0x8000;
  const magnitude = encoding & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= f16OverflowBits) return sign | f16Infinity;
  if (magnitude < f16SmallestNormalBits) {
    // The last place of a binary32 in [0.5, 1) is 2^-24, the unit of subnormal F16: the addition does the rounding.
    float[0] = Math.abs(value) + 0.5;
    return sign | (bits[0]! - 0x3f000000);
  }
  const rounded = (magnitude + 0xfff + ((magnitude >>> 13) & 1)) >>> 13;
  return sign | (rounded - (112 << 10));
}

/** The value of a BF16 given by its 16 bits. */
export function widenBf16(half: number): number {
  bits[0] = (half & 0xffff) << 16;
  return float[0]!;
}

/** The 16 bits of the BF16 nearest to a binary32; the largest ones round up to infinity. */
export function narrowBf16(value: number): number {
  float[0] = value;
  const encoding = bits[0]!;
  if ((encoding & 0x7fffffff) > 0x7f800000) return ((encoding >>> 16) & 0x8000) | 0x7fc0;
  return ((encoding + 0x7fff + ((encoding >>> 16) & 1)) >>> 16) & 0xffff;
}

/** Widens 16-bit elements into `out`, which holds at least as many. */
export function widenHalves(type: 'f16' | 'bf16', source: Uint16Array, out: Float32Array): void {
  if (type === 'f16') {
    const table = f16Table();
    for (let index = 0; index < source.length; index++) out[index] = table[source[index]!]!;
    return;
  }
  const outBits = new Uint32Array(out.buffer, out.byteOffset, source.length);
  for (let index = 0; index < source.length; index++) outBits[index] = source[index]! << 16;
}

/**
 * Stored elements as binary32, row-major as they lie. `bytes` is aligned to the element size and holds a whole number
 * of elements; F32 comes back as a view of the same bytes.
 */
export function widenStored(type: StoredType, bytes: Uint8Array): Float32Array {
  if (type === 'f32') return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  const out = new Float32Array(halves.length);
  widenHalves(type, halves, out);
  return out;
}
