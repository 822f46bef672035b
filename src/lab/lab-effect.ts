import type { EffectSummary } from './lab-predicate.js';
import type { PairedEffect } from './statistics/paired-effect.js';

/** A fraction as a file holds it: what binary64 arithmetic on another machine gives, too. */
export function fractionText(value: number): string {
  if (!Number.isFinite(value)) throw new RangeError(`Cannot write ${value}: want a finite number`);
  return String(Number(value.toPrecision(12)));
}

const orNull = (value: number | null): string | null => (value === null ? null : fractionText(value));

/** A paired effect as the receipt holds it. */
export function effectSummary(effect: PairedEffect): EffectSummary {
  const { interval, bootstrap } = effect;
  return {
    pairs: effect.pairs,
    leftOut: effect.leftOut,
    ratio: orNull(effect.ratio),
    interval: interval === null ? null : intervalText(interval),
    bootstrap:
      bootstrap === null
        ? null
        : { ...intervalText(bootstrap), resamples: bootstrap.resamples, exhaustive: bootstrap.exhaustive },
    orderEffects: effect.orderEffects.map(({ place, ratio }) => ({ place, ratio: fractionText(ratio) })),
    logDeviation: orNull(effect.logDeviation),
    ratioOfMedians: orNull(effect.ratioOfMedians),
    logRatios: effect.logRatios.map(fractionText),
    warnings: effect.warnings.map(({ code, text }) => ({ code, text })),
  };
}

function intervalText({ low, high, confidence }: { low: number; high: number; confidence: number }) {
  return { low: fractionText(low), high: fractionText(high), confidence: fractionText(confidence) };
}
