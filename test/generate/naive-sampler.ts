import { exp32 } from '../../src/base/elementary.js';
import { uniform } from '../../src/base/philox.js';
import type { GenerateOptions } from '../../src/generate/options.js';

/** docs/numerics.md, "Choosing a token", step by step, with no thought of speed. */
export function naiveSample(logits: Float32Array, position: number, options: GenerateOptions): number {
  if (options.temperature === 0) {
    let best = 0;
    logits.forEach((logit, id) => {
      if (logit > logits[best]!) best = id;
    });
    return best;
  }
  // 1: scores, descending, the lowest id first among equals
  let ranks = Array.from(logits, (logit, id) => ({
    id,
    l: Math.fround(logit / Math.fround(options.temperature)),
  }));
  ranks.sort((a, b) => (a.l > b.l ? -1 : a.l < b.l ? 1 : a.id - b.id));
  // 2: top-k, with all that equal rank k - 1
  if (options.topK > 0 && options.topK < ranks.length) {
    const least = ranks[options.topK - 1]!.l;
    ranks = ranks.filter(({ l }, rank) => rank < options.topK || l === least);
  }
  // 3: weights
  const weightOf = (l: number): number => (l === ranks[0]!.l ? 1 : exp32(Math.fround(l - ranks[0]!.l)));
  let weighted = ranks.map(({ id, l }) => ({ id, w: weightOf(l) }));
  const sumOf = (list: readonly { w: number }[]): number => list.reduce((sum, { w }) => sum + w, 0);
  // 4: top-p
  if (options.topP !== 1) {
    const wanted = options.topP * sumOf(weighted);
    let length = 1;
    while (length < weighted.length && sumOf(weighted.slice(0, length)) < wanted) length++;
    weighted = weighted.slice(0, length);
  }
  // 5: min-p
  weighted = weighted.filter(({ w }) => w >= options.minP * weighted[0]!.w);
  // 6: the draw
  const mark = uniform(options.seed, position, 0) * sumOf(weighted);
  const chosen = weighted.findIndex((_, rank) => sumOf(weighted.slice(0, rank + 1)) > mark);
  return weighted[chosen < 0 ? weighted.length - 1 : chosen]!.id;
}
