import { exp64 } from './binary64.js';

/** Density of the standard normal distribution. */
export function normalDensity(x: number): number {
  return exp64((-x * x) / 2) / Math.sqrt(2 * Math.PI);
}

/**
 * Distribution function of the standard normal, from the series
 * `1/2 + density(x) * (x + x^3/3 + x^5/(3*5) + ...)` (Abramowitz and Stegun 26.2.11). Its terms have one sign, so it is
 * good to about 1e-15 absolute for |x| <= 8, and 0 or 1 beyond.
 */
export function normalCumulative(x: number): number {
  if (Math.abs(x) > 8) return x > 0 ? 1 : 0;
  let term = x;
  let sum = x;
  for (let odd = 3; Math.abs(term) > 1e-17 * Math.abs(sum); odd += 2) {
    term *= (x * x) / odd;
    sum += term;
  }
  return 0.5 + normalDensity(x) * sum;
}

/** The x below which a standard normal lies with the given probability, 1e-9 <= p <= 1 - 1e-9; by Newton's method. */
export function normalQuantile(probability: number): number {
  if (!(probability >= 1e-9 && probability <= 1 - 1e-9)) {
    throw new RangeError(`Cannot take the normal quantile at ${probability}: want 1e-9 to 1 - 1e-9`);
  }
  let x = 0;
  for (let step = 0; step < 100; step++) {
    const change = (normalCumulative(x) - probability) / normalDensity(x);
    // Starting at the inflection, Newton's steps approach from one side; the cap guards the flat tail.
    x -= Math.max(-1, Math.min(1, change));
    if (Math.abs(change) < 1e-13) break;
  }
  return x;
}
