import { exp64, log64 } from '../../base/binary64.js';
import { type BootstrapInterval, bootstrapMean } from './bootstrap.js';
import { bootstrapCoverage } from './coverage.js';
import { type Fit, leastSquares } from './least-squares.js';
import { outlierIndices } from './outliers.js';
import { doubledMedian } from './percentile.js';
import { studentQuantile } from './student.js';
import type { Warning } from './warnings.js';

/** Below this many pairs there is no interval. */
export const leastPairsOfInterval = 5;

/** One block's values of the two arms that are compared, and where each stood in the block. */
export interface Pair {
  /** Null where a trial is missing or does not hold the metric. */
  readonly value: bigint | null;
  readonly against: bigint | null;
  readonly place: number;
  readonly againstPlace: number;
}

export interface RatioInterval {
  readonly low: number;
  readonly high: number;
  readonly confidence: number;
}

/** The slot's own effect: how much longer a trial takes at `place` than at place 0, as a ratio. */
export interface OrderEffect {
  readonly place: number;
  readonly ratio: number;
}

/** A paired comparison. What cannot be said is null, and a warning says why. */
export interface PairedEffect {
  /** Pairs that counted, and pairs that were left out because a value is missing or not positive. */
  readonly pairs: number;
  readonly leftOut: number;
  /** Geometric mean of the pairs' ratios, order effects removed. */
  readonly ratio: number | null;
  /** Student t on the log ratios. */
  readonly interval: RatioInterval | null;
  /** Paired percentile bootstrap, shown beside it. */
  readonly bootstrap: (RatioInterval & Pick<BootstrapInterval, 'resamples' | 'exhaustive'>) | null;
  readonly orderEffects: readonly OrderEffect[];
  /** Standard deviation of a log ratio around the fit. */
  readonly logDeviation: number | null;
  /** Another number than `ratio`, and named apart. */
  readonly ratioOfMedians: number | null;
  /** Log ratios in block order, order effects removed. */
  readonly logRatios: readonly number[];
  readonly warnings: readonly Warning[];
}

/** Residuals below this are rounding, not variance. */
const roundingOfLogs = 1e-12;

/**
 * Compares two arms over blocks of `places` trials. Order effects are fitted as a cost of each place (with two arms:
 * of running second) and removed, so that drift from slot to slot neither shifts the estimate nor widens its interval
 * beyond the stated level. `seed` is that of the bootstrap; null leaves it out.
 */
export function pairedEffect(
  pairs: readonly Pair[],
  places: number,
  confidence: number,
  seed: number | null,
): PairedEffect {
  const usable = pairs.filter(
    ({ value, against }) => value !== null && against !== null && value > 0n && against > 0n,
  );
  const warnings: Warning[] = [];
  const leftOut = pairs.length - usable.length;
  if (leftOut > 0) {
    warnings.push({
      code: 'pairs-left-out',
      text: `${leftOut} of ${pairs.length} pairs are left out: a value is missing or not positive`,
    });
  }
  const logs = usable.map(({ value, against }) => log64(Number(value)) - log64(Number(against)));
  const base = {
    pairs: usable.length,
    leftOut,
    ratioOfMedians: ratioOfMedians(usable),
    warnings,
  };
  const fit =
    usable.length === 0
      ? null
      : leastSquares(
          logs,
          usable.map((pair) => designRow(pair, places)),
        );
  if (fit === null) {
    if (usable.length > 0) {
      warnings.push({
        code: 'order-not-separable',
        text: 'the order of the trials does not tell the effect from the order, so there is no interval',
      });
    }
    const ratio = logs.length === 0 ? null : exp64(mean(logs));
    return {
      ...base,
      ratio,
      interval: null,
      bootstrap: null,
      orderEffects: [],
      logDeviation: null,
      logRatios: logs,
    };
  }
  const logRatios = fit.residuals.map((residual) => residual + fit.intercept);
  return {
    ...base,
    ratio: exp64(fit.intercept),
    ...spread(fit, logRatios, confidence, seed, warnings),
    orderEffects: fit.slopes.map((slope, index) => ({ place: index + 1, ratio: exp64(slope) })),
    logRatios,
  };
}

function spread(
  fit: Fit,
  logRatios: readonly number[],
  confidence: number,
  seed: number | null,
  warnings: Warning[],
): Pick<PairedEffect, 'interval' | 'bootstrap' | 'logDeviation'> {
  const count = logRatios.length;
  const degrees = fit.degreesOfFreedom;
  if (degrees < 1) {
    warnings.push(fewPairs(count));
    return { interval: null, bootstrap: null, logDeviation: null };
  }
  const flat = fit.residuals.every((residual) => Math.abs(residual) <= roundingOfLogs);
  const logDeviation = flat
    ? 0
    : Math.sqrt(fit.residuals.reduce((sum, residual) => sum + residual * residual, 0) / degrees);
  if (count < leastPairsOfInterval) {
    warnings.push(fewPairs(count));
    return { interval: null, bootstrap: null, logDeviation };
  }
  if (flat) {
    warnings.push({
      code: 'zero-variance',
      text: 'all pairs have the same ratio, so there is no interval: no clock is that steady',
    });
    return { interval: null, bootstrap: null, logDeviation };
  }
  const outliers = outlierIndices(fit.residuals);
  if (outliers.length > 0) {
    warnings.push({
      code: 'outlier',
      text: `far from the other pairs, and kept: ${outliers.map((index) => `pair ${index + 1}`).join(', ')}`,
    });
  }
  const reach = studentQuantile(confidence, degrees) * logDeviation;
  const half = reach * Math.sqrt(fit.interceptLeverage);
  const slopes = fit.slopes.filter(
    (slope, index) => Math.abs(slope) > reach * Math.sqrt(fit.slopeLeverages[index]!),
  );
  if (slopes.length > 0) {
    warnings.push({
      code: 'order-effect',
      text: `the place in the block changes the value by up to ${percent(Math.max(...slopes.map(Math.abs)))}; it is removed`,
    });
  }
  return {
    interval: { low: exp64(fit.intercept - half), high: exp64(fit.intercept + half), confidence },
    bootstrap: seed === null ? null : resampled(logRatios, confidence, seed, warnings),
    logDeviation,
  };
}

function resampled(
  logRatios: readonly number[],
  confidence: number,
  seed: number,
  warnings: Warning[],
): PairedEffect['bootstrap'] {
  const { low, high, resamples, exhaustive } = bootstrapMean(logRatios, confidence, seed);
  const count = logRatios.length;
  warnings.push({
    code: 'bootstrap-narrow',
    text: `the bootstrap interval covers about ${bootstrapCoverage(count)} % at ${count} pairs where 95 % is stated: it is narrow`,
  });
  return { low: exp64(low), high: exp64(high), confidence, resamples, exhaustive };
}

/** Place 0 is the base line; with two arms the one column is -1 where the arm came first and 1 where it came second. */
function designRow({ place, againstPlace }: Pair, places: number): number[] {
  return Array.from(
    { length: Math.max(0, places - 1) },
    (_, index) => Number(place === index + 1) - Number(againstPlace === index + 1),
  );
}

function ratioOfMedians(pairs: readonly Pair[]): number | null {
  const above = doubledMedian(pairs.map(({ value }) => value!));
  const below = doubledMedian(pairs.map(({ against }) => against!));
  return above === null || below === null ? null : Number(above) / Number(below);
}

function fewPairs(count: number): Warning {
  return {
    code: 'too-few-pairs',
    text: `${count} ${count === 1 ? 'pair is' : 'pairs are'} too few for an interval, want at least ${leastPairsOfInterval}`,
  };
}

function percent(log: number): string {
  return `${(100 * (exp64(log) - 1)).toFixed(2)} %`;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
