import { formatByteSize } from '../../base/byte-size.js';
import { isTimeMetric, type MetricName } from '../metric-names.js';

/** Nanoseconds for a person: four significant digits in the unit that suits. */
export function timeText(ns: bigint): string {
  const value = Number(ns);
  if (value < 1e3) return `${ns} ns`;
  if (value < 1e6) return `${(value / 1e3).toPrecision(4)} µs`;
  if (value < 1e9) return `${(value / 1e6).toPrecision(4)} ms`;
  return `${fixed(value / 1e9)} s`;
}

/** Bytes for a person. */
export function bytesText(bytes: bigint): string {
  return bytes < 1024n ? `${bytes} B` : formatByteSize(Number(bytes));
}

/** A metric's value in its unit. */
export function metricText(metric: MetricName, value: bigint): string {
  if (isTimeMetric(metric)) return timeText(value);
  return metric.includes('bytes') ? bytesText(value) : value.toString();
}

/** A ratio with the digits that a comparison of clocks can have. */
export function ratioText(ratio: number): string {
  return ratio >= 0.1 && ratio < 100 ? ratio.toFixed(4) : ratio.toPrecision(4);
}

export function intervalText({ low, high }: { low: number; high: number }): string {
  return `${ratioText(low)} to ${ratioText(high)}`;
}

export function percentText(share: number): string {
  return `${Number((100 * share).toPrecision(4))} %`;
}

function fixed(value: number): string {
  return value < 1000 ? value.toPrecision(4) : value.toFixed(0);
}
