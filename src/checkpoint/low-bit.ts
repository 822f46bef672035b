import { UsageError } from '../base/errors.js';

/** Elements that share a scale where a format has groups. */
export const lowBitGroup = 32;

/** Bits that the codes of a format have. */
export const lowBitWidths = [8, 6, 5, 4] as const;
export type LowBitWidth = (typeof lowBitWidths)[number];

/**
 * How a row of weights is kept in few bits: `q[i] = scale * groupScale[i / 32] * code[i]`, where `scale` is a binary32
 * number of the row, `groupScale` a whole number 0..255 (1 where the format has no groups) and `code` a whole number of
 * `bits` bits. Because both factors of the codes are whole, a product with whole inputs is exact in any order of additions.
 */
export interface LowBitFormat {
  readonly bits: LowBitWidth;
  readonly groups: boolean;
}

/** Formats by name. Fewer than 8 bits are useless with one scale a row. */
export const lowBitFormats = {
  int8: { bits: 8, groups: false },
  int8g32: { bits: 8, groups: true },
  int6g32: { bits: 6, groups: true },
  int5g32: { bits: 5, groups: true },
  int4g32: { bits: 4, groups: true },
} as const satisfies Readonly<Record<string, LowBitFormat>>;
export type LowBitName = keyof typeof lowBitFormats;
export const lowBitNames = Object.keys(lowBitFormats) as readonly LowBitName[];

/** Throws `UsageError` `low-bit-format` for an unknown name. */
export function lowBitFormat(name: string): LowBitFormat {
  if (Object.hasOwn(lowBitFormats, name)) return lowBitFormats[name as LowBitName];
  throw new UsageError(
    'low-bit-format',
    `Cannot use the low-bit format ${JSON.stringify(name)}: known are ${lowBitNames.join(', ')}`,
    { format: name },
  );
}

/** Largest whole number of a code; the least is one below its negative, except with 8 bits, where both are 127. */
export function largestCode(bits: LowBitWidth): number {
  return 2 ** (bits - 1) - 1;
}

export function leastCode(bits: LowBitWidth): number {
  return bits === 8 ? -127 : -(2 ** (bits - 1));
}

/** Inputs with their padding to whole groups. */
export function paddedInputs(inputs: number): number {
  return Math.ceil(inputs / lowBitGroup) * lowBitGroup;
}

/**
 * Group scales that are tried against the one that just holds the largest weight: with few codes it pays to clip it.
 * Chosen by the shares of uncertain rows on a trained model; more candidates change them by less than a hundredth.
 */
const shrinkages = [1, 0.97, 0.94, 0.9, 0.86, 0.82, 0.77];

/** Rounds rows of finite weights to a format. What a call returns is valid until the next. */
export class RowQuantiser {
  readonly format: LowBitFormat;
  readonly inputs: number;
  /** [padded inputs]; the padding is 0. */
  readonly codes: Int8Array;
  /** [padded inputs / 32]; 1 throughout where the format has no groups. */
  readonly groupScales: Uint8Array;
  /** Of the row, binary32. */
  scale = 0;
  readonly #tried: Int8Array = new Int8Array(lowBitGroup);

  constructor(inputs: number, format: LowBitFormat) {
    this.inputs = inputs;
    this.format = format;
    this.codes = new Int8Array(paddedInputs(inputs));
    this.groupScales = new Uint8Array(this.codes.length / lowBitGroup).fill(1);
  }

  /** `weights`: the row, [inputs], finite. */
  quantise(weights: Float32Array): this {
    const { bits, groups } = this.format;
    const most = largestCode(bits);
    let largest = 0;
    for (let i = 0; i < this.inputs; i += 1) largest = Math.max(largest, Math.abs(weights[i]!));
    // A scale of 0 is for a row of zeros alone; of subnormal weights it becomes the least subnormal one.
    this.scale = roundedUp(largest / most / (groups ? 255 : 1));
    if (largest === 0) {
      this.codes.fill(0);
      this.groupScales.fill(1);
      return this;
    }
    if (!groups) {
      this.#encode(weights, 0, this.inputs, this.scale, this.codes, 0);
      return this;
    }
    for (let begin = 0, group = 0; begin < this.inputs; begin += lowBitGroup, group += 1) {
      this.#quantiseGroup(weights, begin, Math.min(begin + lowBitGroup, this.inputs), group);
    }
    return this;
  }

  #quantiseGroup(weights: Float32Array, begin: number, end: number, group: number): void {
    const { bits } = this.format;
    let largest = 0;
    for (let i = begin; i < end; i += 1) largest = Math.max(largest, Math.abs(weights[i]!));
    const whole = largest / largestCode(bits) / this.scale;
    let best = Infinity;
    let tried = -1;
    for (const shrinkage of bits === 8 ? [1] : shrinkages) {
      const factor =
        shrinkage === 1 ? Math.min(255, Math.ceil(whole)) : Math.max(1, Math.round(whole * shrinkage));
      if (factor === tried) continue;
      tried = factor;
      const error = this.#encode(weights, begin, end, this.scale * factor, this.#tried, 0);
      if (error >= best) continue;
      best = error;
      this.groupScales[group] = factor;
      this.codes.set(this.#tried.subarray(0, end - begin), begin);
    }
  }

  /** Writes the codes of `[begin, end)` and returns the sum of their squared errors. */
  #encode(
    weights: Float32Array,
    begin: number,
    end: number,
    step: number,
    codes: Int8Array,
    at: number,
  ): number {
    const most = largestCode(this.format.bits);
    const least = leastCode(this.format.bits);
    let error = 0;
    for (let i = begin; i < end; i += 1) {
      const weight = weights[i]!;
      const code = step === 0 ? 0 : Math.min(most, Math.max(least, roundEven(weight / step)));
      codes[at + i - begin] = code;
      const missed = weight - step * code;
      error += missed * missed;
    }
    return error;
  }
}

/** The nearest whole number, of two the even one; |value| below 2^51. */
export function roundEven(value: number): number {
  const shift = 6755399441055744; // 1.5 * 2^52: the sum has no bits behind the point
  return value + shift - shift;
}

/** The least binary32 number that is not below a non-negative binary64 one; infinity above the largest finite one. */
export function roundedUp(value: number): number {
  const near = Math.fround(value);
  return near >= value ? near : nextUp(near);
}

const words = new Uint32Array(1);
const floats = new Float32Array(words.buffer);

function nextUp(value: number): number {
  floats[0] = value;
  words[0]! += 1;
  return floats[0];
}
