import { narrowBf16, narrowF16 } from '../base/half.js';
import { normalQuantile } from '../base/normal.js';
import { philox4x32 } from '../base/philox.js';
import type { StoredType } from '../base/stored-type.js';

const levels = 256;

/** Mid-quantiles of the standard normal, scaled to variance 1 exactly enough for thresholds that rely on it. */
const normalLevels: readonly number[] = (() => {
  const raw = Array.from({ length: levels }, (_, level) => normalQuantile((level + 0.5) / levels));
  const variance = raw.reduce((sum, value) => sum + value * value, 0) / levels;
  return raw.map((value) => value / Math.sqrt(variance));
})();

/** Two words that key the numbers of one tensor: Philox of (seed, tensor). */
export interface TensorKey {
  readonly first: number;
  readonly second: number;
}

export function tensorKey(seed: number, tensor: number): TensorKey {
  const [first, second] = philox4x32([tensor, 0, 0, 0], [seed >>> 0, Math.floor(seed / 2 ** 32)]);
  return { first, second };
}

/**
 * 32 random bits for a counter. Two rounds of a multiply-xorshift mix (constants of the "lowbias32" search by
 * C. Wellons) with a key word each: far quicker than Philox, and good enough for weights, which are no secret.
 */
export function mixedWord(counter: number, { first, second }: TensorKey): number {
  return mix(mix(counter ^ first) ^ second);
}

function mix(word: number): number {
  let x = word;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** A number of the 256-level normal distribution, for tensors whose elements are computed one by one. */
export function normalAt(index: number, key: TensorKey): number {
  return normalLevels[mixedWord(index, key) & 0xff]!;
}

/** Bits of the stored number nearest to a value. */
export function storedBits(value: number, type: StoredType): number {
  if (type === 'f16') return narrowF16(value);
  if (type === 'bf16') return narrowBf16(value);
  float[0] = value;
  return floatBits[0]!;
}

const float = new Float32Array(1);
const floatBits = new Uint32Array(float.buffer);

/** Elements of a tensor from `firstElement` on, as stored bits. */
export type Fill = (target: Uint16Array | Uint32Array, firstElement: number) => void;

/**
 * Independent normal weights: element i takes byte `i mod 4` of the word for counter `floor(i / 4)` and looks its
 * value up among 256, already rounded to the storage type. `firstElement` must be a multiple of 4.
 */
export function randomFill(deviation: number, type: StoredType, key: TensorKey): Fill {
  const values = normalLevels.map((level) => storedBits(level * deviation, type));
  const table = type === 'f32' ? Uint32Array.from(values) : Uint16Array.from(values);
  return (target, firstElement) => {
    let counter = firstElement / 4;
    const whole = target.length - (target.length % 4);
    for (let index = 0; index < whole; index += 4) {
      const word = mixedWord(counter++, key);
      target[index] = table[word & 0xff]!;
      target[index + 1] = table[(word >>> 8) & 0xff]!;
      target[index + 2] = table[(word >>> 16) & 0xff]!;
      target[index + 3] = table[word >>> 24]!;
    }
    if (whole === target.length) return;
    const word = mixedWord(counter, key);
    for (let index = whole; index < target.length; index++) {
      target[index] = table[(word >>> (8 * (index - whole))) & 0xff]!;
    }
  };
}

/** Elements given by a function of their index. */
export function computedFill(value: (index: number) => number, type: StoredType): Fill {
  return (target, firstElement) => {
    for (let index = 0; index < target.length; index++) {
      target[index] = storedBits(value(firstElement + index), type);
    }
  };
}
