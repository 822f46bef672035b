import { normalCumulative, normalQuantile } from '../../base/normal.js';

/** How the probability of a false alarm is spent as information comes in. */
export type Spending = 'obrien-fleming' | 'pocock';

/** Beyond this many deviations a look decides nothing. */
const farthest = 7.5;
/** Intervals of Simpson's rule over the continuation region: errors below 1e-7 for steps of 1/20 of the information. */
const intervals = 600;

const known = new Map<string, readonly number[]>();

/**
 * Critical values of a two-sided group-sequential test of a normal mean, one a look: by alpha spending (K. K. G. Lan and
 * D. L. DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983) and the recursive integration
 * of Armitage, McPherson and Rowe (1969). A mean's estimate with these critical values is a repeated confidence interval: it
 * covers at the stated level whatever look a run stops at. Rounded to 6 decimals, so that all machines agree.
 * `looks` are numbers of blocks, rising; the last has all information.
 * @throws RangeError unless 0 < confidence < 1 and looks are positive and rise
 */
export function sequentialCriticalValues(
  confidence: number,
  looks: readonly number[],
  spending: Spending,
): readonly number[] {
  if (!(confidence > 0 && confidence < 1) || looks.some((look, index) => !(look > (looks[index - 1] ?? 0)))) {
    throw new RangeError(
      `Cannot plan looks after ${looks.join(', ')} blocks at confidence ${confidence}: want rising numbers, and a confidence between 0 and 1`,
    );
  }
  const key = `${spending} ${confidence} ${looks.join(' ')}`;
  const found = known.get(key) ?? solve(1 - confidence, looks, spending);
  known.set(key, found);
  return found;
}

/** Confidence of a single look's interval that makes its critical value `critical`. */
export function nominalConfidence(critical: number): number {
  return 1 - 2 * normalCumulative(-critical);
}

/** Probability of a false alarm, on either side, that may be spent up to a share of the information; half of it on each. */
export function spentAlpha(alpha: number, share: number, spending: Spending): number {
  if (share >= 1) return alpha;
  if (spending === 'pocock') return alpha * Math.log(1 + (Math.E - 1) * share);
  return 4 * normalCumulative(-normalQuantile(1 - alpha / 4) / Math.sqrt(share));
}

/** A density on an even grid of points, with Simpson's weights in it. */
interface Grid {
  readonly points: Float64Array;
  readonly masses: Float64Array;
}

function solve(alpha: number, looks: readonly number[], spending: Spending): readonly number[] {
  const criticals: number[] = [];
  const last = looks.at(-1)!;
  let spent = 0;
  let before = 0;
  // The score process: at information t it is normal with variance t, and independent increments
  let grid: Grid = { points: Float64Array.of(0), masses: Float64Array.of(1) };
  for (const look of looks) {
    const share = look / last;
    const step = Math.sqrt(share - before);
    const target = spentAlpha(alpha, share, spending) - spent;
    const found = criticalOf(target, (value) => exitProbability(grid, value * Math.sqrt(share), step));
    const critical = Math.round(found * 1e6) / 1e6;
    criticals.push(critical);
    spent += target;
    grid = advance(grid, critical * Math.sqrt(share), step);
    before = share;
  }
  return criticals;
}

/** The value whose exit probability is `target`: the falling logarithm is nearly straight, so a guarded secant is there soon. */
function criticalOf(target: number, exit: (value: number) => number): number {
  if (!(exit(farthest) < target)) return farthest;
  let [low, high] = [0, farthest];
  let point = Math.min(farthest - 1, Math.max(0.5, -normalQuantile(Math.max(1e-9, target / 2))));
  let earlier: { point: number; value: number } | null = null;
  for (let round = 0; round < 60 && high - low > 1e-8; round++) {
    // So far out that nothing leaves, the logarithm is no number to go by: the region is halved there
    const value = Math.log(exit(point) / target);
    if (value > 0) low = point;
    else high = point;
    const slope = earlier === null ? -point : (value - earlier.value) / (point - earlier.point);
    const next: number = point - value / slope;
    const usable = Number.isFinite(value) && Number.isFinite(slope) && next > low && next < high;
    if (usable && Math.abs(next - point) < 1e-9) return next;
    earlier = Number.isFinite(value) ? { point, value } : null;
    point = usable ? next : (low + high) / 2;
  }
  return point;
}

/** Probability that the process leaves [-bound, bound] at the next look, having stayed inside so far. */
function exitProbability({ points, masses }: Grid, bound: number, step: number): number {
  let sum = 0;
  for (let index = 0; index < points.length; index++) {
    const distance = (points[index]! - bound) / step;
    if (distance > -8) sum += masses[index]! * normalCumulative(distance);
  }
  return 2 * sum; // the region is symmetric, and so is the density in it
}

/** The density inside [-bound, bound] at the next look. */
function advance({ points, masses }: Grid, bound: number, step: number): Grid {
  const width = (2 * bound) / intervals;
  const next = { points: new Float64Array(intervals + 1), masses: new Float64Array(intervals + 1) };
  const scale = 1 / (step * Math.sqrt(2 * Math.PI));
  for (let place = 0; place <= intervals; place++) {
    const point = -bound + place * width;
    let density = 0;
    for (let index = 0; index < points.length; index++) {
      const distance = (point - points[index]!) / step;
      density += masses[index]! * Math.exp(-0.5 * distance * distance);
    }
    const weight = place === 0 || place === intervals ? 1 : place % 2 === 1 ? 4 : 2;
    next.points[place] = point;
    next.masses[place] = (density * scale * weight * width) / 3;
  }
  return next;
}
