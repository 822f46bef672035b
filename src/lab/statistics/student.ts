/**
 * Student's t distribution with a whole number of degrees of freedom, from its finite series (Abramowitz and Stegun,
 * "Handbook of Mathematical Functions", 26.7.3 and 26.7.4), exact up to rounding.
 */

/** Probability that |T| is below t >= 0. */
export function studentCentral(t: number, degrees: number): number {
  requireDegrees(degrees);
  if (!(t >= 0)) throw new RangeError(`Cannot take the t distribution at ${t}: want a number from 0`);
  if (t === Infinity) return 1;
  const scale = Math.sqrt(degrees + t * t);
  const sine = t / scale;
  const cosine = Math.sqrt(degrees) / scale;
  const squared = cosine * cosine;
  // Odd: cos, then times (2 cos^2)/3, (4 cos^2)/5, ...; even: 1, then times (1 cos^2)/2, (3 cos^2)/4, ...
  const odd = degrees % 2 === 1;
  let term = odd ? cosine : 1;
  let sum = 0;
  for (let step = odd ? 3 : 2; step <= degrees; step += 2) {
    sum += term;
    term *= (squared * (step - 1)) / step;
  }
  if (!odd) return sine * sum;
  return (2 / Math.PI) * (Math.atan2(sine, cosine) + sine * sum);
}

/**
 * The t with probability `confidence` between -t and t, by bisection on the distribution.
 * @throws RangeError unless 0 < confidence < 1 and degrees is a positive integer
 */
export function studentQuantile(confidence: number, degrees: number): number {
  requireDegrees(degrees);
  if (!(confidence > 0 && confidence < 1)) {
    throw new RangeError(
      `Cannot take the t quantile at confidence ${confidence}: want a number between 0 and 1`,
    );
  }
  let low = 0;
  let high = 1;
  while (studentCentral(high, degrees) < confidence) {
    low = high;
    high *= 2;
  }
  for (;;) {
    const middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    if (studentCentral(middle, degrees) < confidence) low = middle;
    else high = middle;
  }
}

function requireDegrees(degrees: number): void {
  if (Number.isSafeInteger(degrees) && degrees >= 1 && degrees <= 1_000_000) return;
  throw new RangeError(`Cannot use ${degrees} degrees of freedom: want an integer from 1 to 1000000`);
}
