import { narrowBf16, widenBf16 } from '../base/half.js';
import {
  largestScale,
  type QuantisedLayout,
  type QuantisedType,
  quantisedFormats,
  quantisedLayout,
} from '../base/quantised-type.js';

/** 1.5 * 2^52: adding it to a number below 2^51 rounds that to a whole number, ties to even. */
const roundingShift = 6755399441055744;

/** The weights of one input to all outputs, by input; called for every input in ascending order, as often as needed. */
export type InputRows = (visit: (input: number, weights: ArrayLike<number>) => void) => Promise<void>;

/**
 * Quantises a matrix of K inputs and N outputs, symmetrically: the scale of a group is the least BF16 number that is not
 * below its largest magnitude / the largest code, so that nothing is clipped; a code is weight / scale to nearest, ties to
 * even. Returns codes and scales as `quantisedLayout` lays them out, or null where a weight is not finite or too large for
 * a scale.
 */
export async function quantise(
  type: QuantisedType,
  inputs: number,
  outputs: number,
  rows: InputRows,
): Promise<Uint8Array | null> {
  const layout = quantisedLayout(type, inputs, outputs);
  const bytes = new Uint8Array(layout.byteLength);
  const codes = new Int32Array(bytes.buffer, 0, layout.codeBytes / 4);
  const scales = await scalesOf(type, layout, outputs, rows);
  if (scales === null) return null;
  new Uint16Array(bytes.buffer, layout.scalesOffset, scales.length).set(scales);
  const { bits, inputsPerWord, groupInputs } = quantisedFormats[type];
  const mask = 2 ** bits - 1;
  const groupScales = new Float64Array(outputs);
  let group = -1;
  await rows((input, weights) => {
    const own = Math.floor(input / groupInputs);
    if (own !== group) {
      group = own;
      for (let j = 0; j < outputs; j += 1) groupScales[j] = widenBf16(scales[group * outputs + j]!);
    }
    const word = Math.floor(input / inputsPerWord) * outputs;
    const shift = bits * (input % inputsPerWord);
    for (let j = 0; j < outputs; j += 1) {
      const scale = groupScales[j]!;
      if (scale === 0) continue;
      const code = weights[j]! / scale + roundingShift - roundingShift;
      codes[word + j] = codes[word + j]! | ((code & mask) << shift);
    }
  });
  return bytes;
}

/** Null where there is none. */
async function scalesOf(
  type: QuantisedType,
  { groups }: QuantisedLayout,
  outputs: number,
  rows: InputRows,
): Promise<Uint16Array | null> {
  const { largestCode, groupInputs } = quantisedFormats[type];
  const largest = new Float64Array(groups * outputs);
  let finite = true;
  await rows((input, weights) => {
    const group = Math.floor(input / groupInputs) * outputs;
    for (let j = 0; j < outputs; j += 1) {
      const size = Math.abs(weights[j]!);
      if (size > largest[group + j]!) largest[group + j] = size;
      else if (Number.isNaN(size)) finite = false;
    }
  });
  const scales = new Uint16Array(groups * outputs);
  for (let at = 0; at < scales.length; at += 1) {
    const least = largest[at]! / largestCode;
    if (!(least <= largestScale)) return null;
    const nearest = narrowBf16(least);
    scales[at] = widenBf16(nearest) < least ? nearest + 1 : nearest;
  }
  return finite ? scales : null;
}
