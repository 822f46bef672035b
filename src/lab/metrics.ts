import { moveCauses, weightMoveCauses } from '../memory/causes.js';
import { type MetricName, metricNames } from './metric-names.js';
import type { TrialRecord } from './record-format.js';

/** Metrics of one trial; null is unmeasured, never zero. */
export type TrialMetrics = Readonly<Record<MetricName, bigint | null>>;

/** Causes of moves that carry no weights of an episode; every other cause does, those that an arm's program names itself too. */
const otherCauses: ReadonlySet<string> = new Set(
  moveCauses.filter((cause) => !(weightMoveCauses as readonly string[]).includes(cause)),
);

/** Recomputes every metric from the raw record of one trial alone. */
export function trialMetrics(record: TrialRecord): TrialMetrics {
  return Object.fromEntries(metricNames.map((name) => [name, trialMetric(record, name)])) as TrialMetrics;
}

/** One metric of one trial; null where the record does not hold what it is made of, or holds a clock that stepped back. */
export function trialMetric(record: TrialRecord, name: MetricName): bigint | null {
  const { bytes, peaks, requests, times } = record;
  switch (name) {
    case 'episode-ns':
      return forward(difference(times.endedNs, times.beganNs));
    case 'time-to-first-token-ns':
      return largest(requests.map(({ timeToFirstTokenNs }) => integer(timeToFirstTokenNs)));
    case 'prefill-ns':
      return sum(requests.map(({ prefillNs }) => integer(prefillNs)));
    case 'decode-ns':
      return sum(requests.map(({ decodeNs }) => integer(decodeNs)));
    case 'decode-call-ns':
      return decodeCallNs(record);
    case 'outside-call-ns':
      return outsideCallNs(record);
    case 'recording-ns':
      return integer(times.recordingNs);
    case 'setup-ns':
      return integer(times.setupNs);
    case 'cold-first-token-ns':
      return sum([integer(times.setupNs), integer(requests[0]?.timeToFirstTokenNs ?? null)]);
    case 'cold-episode-ns':
      return sum([integer(times.setupNs), trialMetric(record, 'episode-ns')]);
    case 'moved-bytes':
      return movedWeightBytes(record);
    case 'moved-rows.packet-rows':
      return integer(bytes.movedRows?.['packet-rows'] ?? null);
    case 'setup-moved-bytes':
      return setupMovedBytes(record);
    case 'device-read-bytes':
      return integer(bytes.deviceRead);
    case 'recording-bytes':
      return integer(bytes.recording);
    case 'planned-bytes':
      return integer(record.arm.plannedBytes);
    case 'peak-held-bytes':
      return integer(peaks.heldBytes);
    case 'peak-resident-set-bytes':
      return largest([integer(peaks.residentSetBytes), ...measured(record, 'residentSetBytes')]);
    case 'sampled-resident-set-bytes':
      return largest(measured(record, 'residentSetBytes'));
    case 'peak-device-used-bytes':
      return largest([...known(peaks.deviceUsedBytes), ...measured(record, 'deviceUsedBytes')]);
    case 'peak-pinned-bytes':
      return integer(peaks.pinnedBytes);
    case 'prompt-tokens':
      return sum(requests.map(({ promptTokens }) => BigInt(promptTokens)));
    case 'new-tokens':
      return sum(requests.map(({ newTokens }) => BigInt(newTokens)));
    default: {
      const cause = moveCauses.find((known) => name === `moved-bytes.${known}`);
      return integer((cause === undefined ? null : bytes.moved?.[cause]) ?? null);
    }
  }
}

/** Decode passes: one less than the new tokens of each request, since prefill gives the first. */
function decodeCallNs({ requests }: TrialRecord): bigint | null {
  const unmeasured = requests.some(
    ({ decodeStepNs, newTokens }) => decodeStepNs.length === 0 && newTokens > 1,
  );
  if (unmeasured) return null;
  return sum(
    requests.flatMap(({ decodeStepNs }) => decodeStepNs.map(integer)),
    requests.length > 0,
  );
}

function outsideCallNs(record: TrialRecord): bigint | null {
  const episode = trialMetric(record, 'episode-ns');
  const prefill = trialMetric(record, 'prefill-ns');
  const decode = decodeCallNs(record);
  if (episode === null || prefill === null || decode === null) return null;
  return forward(episode - prefill - decode);
}

/** A record lists all causes that its program knows, so that a cause of a later program is none of its. */
function movedWeightBytes({ bytes }: TrialRecord): bigint | null {
  const weights = Object.entries(bytes.moved ?? {}).filter(([cause]) => !otherCauses.has(cause));
  return sum(weights.map(([, count]) => integer(count)));
}

function setupMovedBytes({ bytes, fresh }: TrialRecord): bigint | null {
  if (!fresh || bytes.setupMoved === null) return null;
  const placed = Object.entries(bytes.setupMoved).filter(([cause]) => cause !== 'host-mirror');
  return sum(
    placed.map(([, count]) => integer(count)),
    true,
  );
}

function measured({ samples }: TrialRecord, field: 'residentSetBytes' | 'deviceUsedBytes'): bigint[] {
  return samples.flatMap((sample) => (sample[field] === null ? [] : [BigInt(sample[field])]));
}

/** Nothing where a device tells no high-water mark and samples must do. */
function known(text: string | null): bigint[] {
  return text === null ? [] : [BigInt(text)];
}

function integer(text: string | null): bigint | null {
  return text === null ? null : BigInt(text);
}

function difference(later: string, earlier: string): bigint {
  return BigInt(later) - BigInt(earlier);
}

/** A duration below zero comes of a clock that stepped back, and measures nothing. */
function forward(duration: bigint): bigint | null {
  return duration < 0n ? null : duration;
}

/** Null where one is missing, or where there is none and none is not a value. */
function sum(values: readonly (bigint | null)[], emptyIsZero = false): bigint | null {
  if (values.length === 0 && !emptyIsZero) return null;
  let total = 0n;
  for (const value of values) {
    if (value === null) return null;
    total += value;
  }
  return total;
}

/** Null for no values, and where one is missing: the largest may be the missing one. */
function largest(values: readonly (bigint | null)[]): bigint | null {
  let found: bigint | null = null;
  for (const value of values) {
    if (value === null) return null;
    if (found === null || value > found) found = value;
  }
  return found;
}
