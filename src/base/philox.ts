/**
 * Philox 4x32-10, a counter-based generator (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011): a number depends on its key and counter alone, never on what was drawn before.
 */

const multiplier0 = 0xd2511f53;
const multiplier1 = 0xcd9e8d57;
const keyStep0 = 0x9e3779b9;
const keyStep1 = 0xbb67ae85;
const rounds = 10;

export type PhiloxCounter = readonly [number, number, number, number];
export type PhiloxKey = readonly [number, number];

/** Four 32-bit words for a counter of four and a key of two 32-bit words, each an unsigned integer. */
export function philox4x32(counter: PhiloxCounter, key: PhiloxKey): [number, number, number, number] {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < rounds; round++) {
    const high0 = highWord(multiplier0, c0);
    const high1 = highWord(multiplier1, c2);
    const low0 = Math.imul(multiplier0, c0) >>> 0;
    const low1 = Math.imul(multiplier1, c2) >>> 0;
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0;
    k0 = (k0 + keyStep0) >>> 0;
    k1 = (k1 + keyStep1) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** Upper 32 bits of the product of two unsigned 32-bit integers; every intermediate is below 2^53. */
function highWord(a: number, b: number): number {
  const aHigh = a >>> 16;
  const aLow = a & 0xffff;
  const bHigh = b >>> 16;
  const bLow = b & 0xffff;
  const middle = aHigh * bLow + Math.floor((aLow * bLow) / 65536);
  const cross = aLow * bHigh + (middle % 65536);
  return (aHigh * bHigh + Math.floor(middle / 65536) + Math.floor(cross / 65536)) >>> 0;
}

/**
 * The four words of (seed, position, draw), each an integer in [0, 2^53) (seed: below 2^64 as a bigint). Key words:
 * low and high half of the seed. Counter words: low and high half of the position, low and high half of the draw.
 */
export function philoxWords(
  seed: number | bigint,
  position: number,
  draw: number,
): [number, number, number, number] {
  return philox4x32([...halves(position), ...halves(draw)], halves(seed));
}

function halves(value: number | bigint): [number, number] {
  if (typeof value === 'bigint') {
    if (value < 0n || value >= 1n << 64n) {
      throw new RangeError(`Cannot key a random number by ${value}: want an integer from 0 to 2^64 - 1`);
    }
    return [Number(value & 0xffffffffn), Number(value >> 32n)];
  }
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RangeError(`Cannot key a random number by ${value}: want an integer from 0 to 2^53 - 1`);
  }
  return [value >>> 0, Math.floor(value / 2 ** 32)];
}

/**
 * A binary64 in [0, 1), a multiple of 2^-53: with the words w of (seed, position, draw),
 * `(w[0] * 2^21 + floor(w[1] / 2^11)) * 2^-53`.
 */
export function uniform(seed: number | bigint, position: number, draw: number): number {
  const [first, second] = philoxWords(seed, position, draw);
  return (first * 2 ** 21 + (second >>> 11)) * 2 ** -53;
}
