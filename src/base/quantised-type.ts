/**
 * Weight-only quantisation of the rivals that are not exact: `q8` has one scale an output, `q4` one for every 32 inputs of
 * an output. Symmetric: a weight is code * scale, which is exact in binary32 (docs/numerics.md).
 */
export const quantisedTypes = ['q8', 'q4'] as const;
export type QuantisedType = (typeof quantisedTypes)[number];

export interface QuantisedFormat {
  readonly bits: number;
  /** Codes of one output that share a word: consecutive inputs, the first in the lowest bits, two's complement. */
  readonly inputsPerWord: number;
  /** Codes lie in `[-largestCode, largestCode]`. */
  readonly largestCode: number;
  /** Inputs that share a scale; `Infinity`: all of an output. */
  readonly groupInputs: number;
}

export const quantisedFormats: Readonly<Record<QuantisedType, QuantisedFormat>> = {
  q8: { bits: 8, inputsPerWord: 4, largestCode: 127, groupInputs: Infinity },
  q4: { bits: 4, inputsPerWord: 8, largestCode: 7, groupInputs: 32 },
};

/** Scales are BF16, at most this: kernels multiply them by powers of two on the way. */
export const largestScale = 2 ** 100;

const scaleBytes = 2;
const alignment = 64;

/** How a quantised matrix of K inputs and N outputs lies: codes, then scales at the next multiple of 64 bytes. */
export interface QuantisedLayout {
  readonly wordRows: number; // codes: U32 [wordRows, N]
  readonly groups: number; // scales: BF16 [groups, N]
  readonly codeBytes: number;
  readonly scalesOffset: number;
  readonly scaleBytes: number;
  readonly byteLength: number;
}

export function quantisedLayout(type: QuantisedType, inputs: number, outputs: number): QuantisedLayout {
  const { inputsPerWord, groupInputs } = quantisedFormats[type];
  const wordRows = Math.ceil(inputs / inputsPerWord);
  const groups = groupInputs === Infinity ? 1 : Math.ceil(inputs / groupInputs);
  const codeBytes = wordRows * outputs * 4;
  const scalesOffset = Math.ceil(codeBytes / alignment) * alignment;
  const bytesOfScales = groups * outputs * scaleBytes;
  return {
    wordRows,
    groups,
    codeBytes,
    scalesOffset,
    scaleBytes: bytesOfScales,
    byteLength: scalesOffset + bytesOfScales,
  };
}
