import { normalCumulative, normalDensity, normalQuantile } from '../base/normal.js';
import { mixedWord, type TensorKey } from './synthetic-weights.js';

/** How the probabilities of neurons to be active are spread: about a normal threshold, or by Zipf's law of their ranks. */
export type Popularity = { readonly kind: 'normal' } | { readonly kind: 'zipf'; readonly exponent: number };

/** No neuron is active for more tokens than this. */
const mostActive = 0.98;

/**
 * Thresholds of standard normal pre-activations by rank, the most popular first: rank r is passed with probability
 * `c / r^exponent`, at most .98, where c makes the mean of all `active`.
 */
export function zipfThresholds(neurons: number, active: number, exponent: number): number[] {
  const weights = Array.from({ length: neurons }, (_, rank) => (rank + 1) ** -exponent);
  const meanAt = (c: number) => mean(weights.map((weight) => Math.min(mostActive, c * weight)));
  let [low, high] = [0, neurons ** Math.max(1, exponent)];
  for (let step = 0; step < 100; step += 1) {
    const middle = (low + high) / 2;
    if (meanAt(middle) < active) low = middle;
    else high = middle;
  }
  return weights.map((weight) => normalQuantile(1 - Math.min(mostActive, low * weight)));
}

/** Expected square of what a standard normal number has above a threshold, 0 where it has nothing. */
export function squareAbove(threshold: number): number {
  return (
    (1 + threshold * threshold) * (1 - normalCumulative(threshold)) - threshold * normalDensity(threshold)
  );
}

/** A seeded order of 0 to count - 1 (Fisher and Yates, as Durstenfeld writes it). */
export function shuffled(count: number, key: TensorKey): Uint32Array {
  const order = Uint32Array.from({ length: count }, (_, index) => index);
  for (let last = count - 1; last > 0; last -= 1) {
    const other = Math.floor((mixedWord(last, key) / 2 ** 32) * (last + 1));
    [order[last], order[other]] = [order[other]!, order[last]!];
  }
  return order;
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
