import type { MetricName } from './metric-names.js';
import { trialMetric } from './metrics.js';
import type { Protocol } from './protocol-schema.js';
import type { TrialRecord } from './record-format.js';
import type { Selection } from './selection.js';
import { nominalConfidence, sequentialCriticalValues } from './statistics/group-sequential.js';
import { type PairedEffect, pairedEffect } from './statistics/paired-effect.js';

/** One metric of one arm in block order, null where it is missing; of a reference arm its own trials. */
export function armValues(selection: Selection, arm: string, metric: MetricName): (bigint | null)[] {
  const references = selection.references.filter(({ slot }) => slot.arm === arm);
  const trials: (TrialRecord | null)[] =
    references.length > 0 ? references : selection.blocks.map((block) => block?.get(arm) ?? null);
  return trials.map((trial) => (trial === null ? null : trialMetric(trial, metric)));
}

/**
 * Compares a metric of two arms over all blocks; missing trials stay as pairs that are left out. Under a sequential rule the
 * interval is the repeated one of the look that the blocks reach, which keeps the stated confidence over all looks.
 */
export function compareArms(
  protocol: Protocol,
  selection: Selection,
  compared: {
    readonly arm: string;
    readonly against: string;
    readonly metric: MetricName;
    readonly confidence: number;
  },
): PairedEffect {
  const { arm, against, metric, confidence } = compared;
  const pairs = selection.blocks.map((block) => {
    const [trial, other] = [block?.get(arm), block?.get(against)];
    return {
      value: trial === undefined ? null : trialMetric(trial, metric),
      against: other === undefined ? null : trialMetric(other, metric),
      place: trial?.slot.position ?? 0,
      againstPlace: other?.slot.position ?? 0,
    };
  });
  const { arms, schedule } = protocol;
  const { sequential, seed } = schedule;
  if (sequential === undefined) return pairedEffect(pairs, arms.length, confidence, seed);
  const { looks, spending } = sequential;
  const look = looks.indexOf(selection.blocks.length);
  const place = look < 0 ? looks.length - 1 : look;
  const critical = sequentialCriticalValues(confidence, looks, spending)[place]!;
  const effect = pairedEffect(pairs, arms.length, nominalConfidence(critical), null);
  const { interval, warnings } = effect;
  const text = `a repeated interval: look ${place + 1} of ${looks.length}, widened so that all looks together keep ${100 * confidence} %`;
  return {
    ...effect,
    interval: interval === null ? null : { ...interval, confidence },
    // Resampling knows nothing of looks
    bootstrap: null,
    warnings: [...warnings, { code: 'sequential', text }],
  };
}
