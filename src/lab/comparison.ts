import type { MetricName } from './metric-names.js';
import { trialMetric } from './metrics.js';
import type { Protocol } from './protocol-schema.js';
import type { TrialRecord } from './record-format.js';
import type { Selection } from './selection.js';
import { type PairedEffect, pairedEffect } from './statistics/paired-effect.js';

/** One metric of one arm in block order, null where it is missing; of a reference arm its own trials. */
export function armValues(selection: Selection, arm: string, metric: MetricName): (bigint | null)[] {
  const references = selection.references.filter(({ slot }) => slot.arm === arm);
  const trials: (TrialRecord | null)[] =
    references.length > 0 ? references : selection.blocks.map((block) => block?.get(arm) ?? null);
  return trials.map((trial) => (trial === null ? null : trialMetric(trial, metric)));
}

/** Compares a metric of two arms over all blocks; missing trials stay as pairs that are left out. */
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
  return pairedEffect(pairs, protocol.arms.length, confidence, protocol.schedule.seed);
}
