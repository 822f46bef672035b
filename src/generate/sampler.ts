import { exp32 } from '../base/elementary.js';
import { NumericsError } from '../base/errors.js';
import { uniform } from '../base/philox.js';
import type { GenerateOptions } from './options.js';

const fround = Math.fround;

/** The largest logit; of equal ones the lowest id. */
export function greedyToken(logits: Float32Array): number {
  let best = 0;
  let largest = logits[0]!;
  for (let id = 1; id < logits.length; id++) {
    const logit = logits[id]!;
    if (logit > largest) {
      largest = logit;
      best = id;
    }
  }
  return best;
}

/**
 * Checks that a row holds numbers only, and gives the greedy token: one reading of the row for both.
 * @throws NumericsError as `checkFinite`
 */
export function greedyOfFinite(logits: Float32Array, position: number): number {
  // Four chains: one comparison behind another takes twice as long for a vocabulary of 50,000.
  let a = -Infinity;
  let b = -Infinity;
  let c = -Infinity;
  let d = -Infinity;
  // Zero as long as all are finite: infinities and NaN times zero are NaN, which stays.
  let zero = 0;
  let otherZero = 0;
  const whole = logits.length & ~3;
  for (let id = 0; id < whole; id += 4) {
    const w = logits[id]!;
    const x = logits[id + 1]!;
    const y = logits[id + 2]!;
    const z = logits[id + 3]!;
    zero += w * 0 + x * 0;
    otherZero += y * 0 + z * 0;
    if (w > a) a = w;
    if (x > b) b = x;
    if (y > c) c = y;
    if (z > d) d = z;
  }
  for (let id = whole; id < logits.length; id++) {
    zero += logits[id]! * 0;
    if (logits[id]! > a) a = logits[id]!;
  }
  if (zero + otherZero !== 0) checkFinite(logits, position);
  return logits.indexOf(Math.max(a, b, c, d));
}

/**
 * Chooses the token at `position` of its own sequence from one row of logits (docs/numerics.md, "Sampling").
 * Depends on the row, the options and (seed, position, draw) alone: never on the batch or on earlier draws. `greedyId`
 * is the row's greedy token where it is known.
 */
export function sampleToken(
  logits: Float32Array,
  position: number,
  options: GenerateOptions,
  greedyId: number = greedyToken(logits),
): number {
  if (options.temperature === 0) return greedyId;
  const candidates = sortedCandidates(logits, fround(options.temperature));
  let count = keepTopK(candidates, options.topK);
  const weights = candidates.scores.map((score) => weightOf(score, candidates.scores[0]!));
  count = keepTopP(weights, count, options.topP);
  count = keepMinP(weights, count, options.minP);
  return candidates.ids[draw(weights, count, uniform(options.seed, position, 0))]!;
}

/** Scores that a small temperature made infinite have no difference; equal ones weigh 1 like all equals. */
function weightOf(score: number, largest: number): number {
  return score === largest ? 1 : exp32(fround(score - largest));
}

/**
 * Checks that a row holds numbers only.
 * @throws NumericsError `non-finite-logit` naming id and position
 */
export function checkFinite(logits: Float32Array, position: number): void {
  for (let id = 0; id < logits.length; id++) {
    if (Number.isFinite(logits[id]!)) continue;
    throw new NumericsError(
      'non-finite-logit',
      `Cannot choose a token at position ${position}: the logit of id ${id} is ${logits[id]}, want a finite number`,
      { position, id, value: String(logits[id]) },
    );
  }
}

interface Candidates {
  readonly ids: Uint32Array;
  readonly scores: Float32Array; // logit / temperature, descending; of equal ones the lowest id first
}

/**
 * Sorts by packing (order-preserving bits of the score, inverted id) into exact binary64 integers below 2^53, since
 * the numeric sort of a typed array is many times faster than one with a comparison function.
 */
function sortedCandidates(logits: Float32Array, temperature: number): Candidates {
  const idSpan = 2 ** 21;
  if (logits.length > idSpan)
    throw new RangeError(`Cannot sample from ${logits.length} ids: want at most ${idSpan}`);
  const scores = new Float32Array(logits.length);
  // +0 turns -0 into +0, so that both zeros sort as one number
  for (let id = 0; id < logits.length; id++) scores[id] = fround(logits[id]! / temperature) + 0;
  const bits = new Uint32Array(scores.buffer);
  const keys = new Float64Array(logits.length);
  for (let id = 0; id < logits.length; id++) {
    const word = bits[id]!;
    const ordered = (word & 0x80000000) === 0 ? (word | 0x80000000) >>> 0 : ~word >>> 0;
    keys[id] = ordered * idSpan + (idSpan - 1 - id);
  }
  keys.sort();
  const ids = new Uint32Array(logits.length);
  const sorted = new Float32Array(logits.length);
  for (let rank = 0; rank < ids.length; rank++) {
    const id = idSpan - 1 - (keys[ids.length - 1 - rank]! % idSpan);
    ids[rank] = id;
    sorted[rank] = scores[id]!;
  }
  return { ids, scores: sorted };
}

/** Those at least as likely as the k-th stay, its equals included. */
function keepTopK(candidates: Candidates, k: number): number {
  const { scores } = candidates;
  if (k === 0 || k >= scores.length) return scores.length;
  let count = k;
  while (count < scores.length && scores[count] === scores[k - 1]) count++;
  return count;
}

/** The shortest beginning whose weight reaches p of the whole. */
function keepTopP(weights: Float32Array, count: number, p: number): number {
  if (p === 1) return count;
  const wanted = p * total(weights, count);
  let sum = 0;
  for (let rank = 0; rank < count; rank++) {
    sum += weights[rank]!;
    if (sum >= wanted) return rank + 1;
  }
  return count;
}

/** Those of at least p times the largest weight. */
function keepMinP(weights: Float32Array, count: number, p: number): number {
  let kept = count;
  while (kept > 1 && weights[kept - 1]! < p * weights[0]!) kept--;
  return kept;
}

function draw(weights: Float32Array, count: number, u: number): number {
  const wanted = u * total(weights, count);
  let sum = 0;
  for (let rank = 0; rank < count - 1; rank++) {
    sum += weights[rank]!;
    if (sum > wanted) return rank;
  }
  return count - 1;
}

function total(weights: Float32Array, count: number): number {
  let sum = 0;
  for (let rank = 0; rank < count; rank++) sum += weights[rank]!;
  return sum;
}
