import { type LowBitFormat, lowBitGroup, paddedInputs } from './low-bit.js';

/** Sections of a low-bit copy begin at multiples of this: a cache line, and whole SIMD registers. */
const sectionAlignment = 64;

/** Most directions of a layer's inputs along which residuals are stored exactly. */
export const largestDirections = 64;
/** Directions are a multiple of this. */
export const directionUnit = 16;
/** Of a direction's elements, Int16; larger ones would leave sums over wide models beyond 2^53. */
export const largestDirectionElement = 8191;

/** Most inputs of a copy; the CPU kernels unpack a row into room of their own. */
export const largestLowBitInputs = 65_536;

/** A part of a copy: bytes from its begin. */
export interface LowBitSection {
  readonly byteOffset: number;
  readonly byteLength: number;
}

/**
 * Where the parts of a low-bit copy of a matrix of N neurons and K inputs lie, rows one after another; Kp is K up to a
 * multiple of 32, G = Kp / 32, what pads is 0. Little-endian.
 */
export interface LowBitLayout {
  /** F32 [N, recordFloats]: scale, |w|, |E'|, and with directions also component scale, |E' Vᵀ|, |A|, 0, 0. */
  readonly records: LowBitSection;
  readonly recordFloats: 4 | 8;
  /** 8 bits: Int8 [N, Kp]. Fewer: the low four bits of code + 2^(bits - 1), [N, Kp / 2]; see `packCodes`. */
  readonly codes: LowBitSection;
  readonly codeRowBytes: number;
  /** The bits above those four, [N, highRowBytes]. */
  readonly high: LowBitSection;
  readonly highRowBytes: number;
  /** U8 [N, groupRowBytes], G of them used; absent bytes of formats without groups. */
  readonly groupScales: LowBitSection;
  readonly groupRowBytes: number;
  /** Int8 [N, r]: A in units of the component scale. */
  readonly components: LowBitSection;
  /** Int16 [r, Kp]: V in units of 2^-directionExponent. */
  readonly directions: LowBitSection;
  readonly byteLength: number;
}

/** Places the sections of a copy. Throws `RangeError` for more inputs or directions than kernels have room for. */
export function lowBitLayout(
  format: LowBitFormat,
  inputs: number,
  outputs: number,
  directions: number,
): LowBitLayout {
  if (inputs > largestLowBitInputs || directions > largestDirections || directions % directionUnit !== 0) {
    throw new RangeError(`Cannot lay out a low-bit copy of ${inputs} inputs and ${directions} directions`);
  }
  const padded = paddedInputs(inputs);
  const groups = padded / lowBitGroup;
  const recordFloats = directions > 0 ? 8 : 4;
  const codeRowBytes = format.bits === 8 ? padded : padded / 2;
  const highRowBytes = format.bits === 8 ? 0 : groups * (format.bits - 4) * 4;
  const groupRowBytes = format.groups ? Math.ceil(groups / 4) * 4 : 0;
  let end = 0;
  const section = (byteLength: number): LowBitSection => {
    const byteOffset = end;
    end = Math.ceil((end + byteLength) / sectionAlignment) * sectionAlignment;
    return { byteOffset, byteLength };
  };
  return {
    records: section(outputs * recordFloats * 4),
    recordFloats,
    codes: section(outputs * codeRowBytes),
    codeRowBytes,
    high: section(outputs * highRowBytes),
    highRowBytes,
    groupScales: section(outputs * groupRowBytes),
    groupRowBytes,
    components: section(outputs * directions),
    directions: section(directions * padded * 2),
    byteLength: end,
  };
}

/**
 * Writes the codes of one group of 32 in fewer than 8 bits, u = code + 2^(bits - 1): byte j of 16 holds the low four bits
 * of u[j] and, above them, of u[j + 16]. 5 bits: bit j of a 32-bit word is bit 4 of u[j]. 6 bits: byte j of 8 holds bits
 * 4 and 5 of u[j], u[j + 8], u[j + 16] and u[j + 24], two bits each, from the lowest on.
 */
export function packCodes(bits: 4 | 5 | 6, codes: Int8Array, low: Uint8Array, high: Uint8Array): void {
  const offset = 2 ** (bits - 1);
  const unsigned = (index: number) => codes[index]! + offset;
  for (let j = 0; j < 16; j += 1) low[j] = (unsigned(j) & 15) | ((unsigned(j + 16) & 15) << 4);
  high.fill(0);
  if (bits === 5) for (let j = 0; j < 32; j += 1) high[j >> 3]! |= (unsigned(j) >> 4) << (j & 7);
  if (bits === 6) for (let j = 0; j < 32; j += 1) high[j & 7]! |= (unsigned(j) >> 4) << (2 * (j >> 3));
}

/** Reads what `packCodes` wrote. */
export function unpackCodes(bits: 4 | 5 | 6, low: Uint8Array, high: Uint8Array, codes: Int8Array): void {
  const offset = 2 ** (bits - 1);
  for (let j = 0; j < 32; j += 1) {
    const nibble = j < 16 ? low[j]! & 15 : low[j - 16]! >> 4;
    const above =
      bits === 4 ? 0 : bits === 5 ? (high[j >> 3]! >> (j & 7)) & 1 : (high[j & 7]! >> (2 * (j >> 3))) & 3;
    codes[j] = (nibble | (above << 4)) - offset;
  }
}

/**
 * What `round-input` leaves for `certify`: F64 [T, 8], Int16 [T, Kp], Int16 [T, r]. The eight numbers of a row: scale of the
 * rounded input, scale of its components; factors of |w|, |E'|, |E' Vᵀ| and |A| in the bound; its constant; |x|. Where the
 * input is not finite |x| is infinity and all else 0.
 */
export interface RoundedInputLayout {
  readonly scalars: LowBitSection;
  readonly inputs: LowBitSection;
  readonly components: LowBitSection;
  readonly byteLength: number;
}

/** Numbers of a row in the first section. */
export const roundedInputScalars = 8;

export function roundedInputLayout(rows: number, inputs: number, directions: number): RoundedInputLayout {
  const scalars = { byteOffset: 0, byteLength: rows * roundedInputScalars * 8 };
  const rounded = { byteOffset: scalars.byteLength, byteLength: rows * paddedInputs(inputs) * 2 };
  const components = {
    byteOffset: rounded.byteOffset + rounded.byteLength,
    byteLength: rows * directions * 2,
  };
  return {
    scalars,
    inputs: rounded,
    components,
    byteLength: components.byteOffset + components.byteLength,
  };
}
