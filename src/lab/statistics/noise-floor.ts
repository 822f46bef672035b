import type { PairedEffect } from './paired-effect.js';

/** What identical arms gave: effects smaller than this are noise. */
export interface NoiseFloor {
  readonly pairs: number;
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  /** The end of the interval that lies farther from 1, as a share: 0.012 for 1.2 %. */
  readonly share: number;
}

/** The noise floor of an A/A comparison; null where it has no interval. */
export function noiseFloor({ pairs, ratio, interval }: PairedEffect): NoiseFloor | null {
  if (ratio === null || interval === null) return null;
  const share = Math.max(Math.abs(interval.high - 1), Math.abs(interval.low - 1));
  return { pairs, ratio, low: interval.low, high: interval.high, share };
}
