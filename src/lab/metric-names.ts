import { moveCauses } from '../memory/causes.js';

/** What is read off one trial: an integer, or nothing where the trial does not hold it. Units are in the names. */
export const timeMetrics = [
  /** The whole episode, all its requests one after another. */
  'episode-ns',
  /** The longest of the trial's requests. */
  'time-to-first-token-ns',
  'prefill-ns',
  'decode-ns',
  /** Inside decode passes alone. */
  'decode-call-ns',
  /** Episode less prefill and decode passes. */
  'outside-call-ns',
  'recording-ns',
  'setup-ns',
  /** Setup and the first request's first token. */
  'cold-first-token-ns',
  /** Setup and the whole first episode. */
  'cold-episode-ns',
] as const;

const weightMoveMetrics = moveCauses.map((cause) => `moved-bytes.${cause}` as const);

export const byteMetrics = [
  /** Weights, and the indices that travel with them, that crossed the link while the model ran. */
  'moved-bytes',
  ...weightMoveMetrics,
  'moved-rows.packet-rows',
  /** Into the memory that a budget is of, before the first pass. */
  'setup-moved-bytes',
  'device-read-bytes',
  'recording-bytes',
] as const;

export const peakMetrics = [
  'planned-bytes',
  'peak-held-bytes',
  /** High-water mark of the process; says something of one arm only where each trial has its own process. */
  'peak-resident-set-bytes',
  'sampled-resident-set-bytes',
  'peak-device-used-bytes',
  'peak-pinned-bytes',
] as const;

export const countMetrics = ['prompt-tokens', 'new-tokens'] as const;

export const metricNames = [...timeMetrics, ...byteMetrics, ...peakMetrics, ...countMetrics] as const;
export type MetricName = (typeof metricNames)[number];

/** Metrics of the process as a whole: what ran in it before counts, too. */
export const processWideMetrics: readonly MetricName[] = [
  'peak-resident-set-bytes',
  'sampled-resident-set-bytes',
  'peak-device-used-bytes',
];

/** Metrics that only a process which has done nothing before can show. */
export const firstUseMetrics: readonly MetricName[] = ['setup-ns', 'cold-first-token-ns', 'cold-episode-ns'];

export function isTimeMetric(name: MetricName): boolean {
  return (timeMetrics as readonly string[]).includes(name);
}
