import { compareArms } from '../comparison.js';
import type { JudgedArchive } from '../lab-receipt.js';
import { isTimeMetric, type MetricName } from '../metric-names.js';
import { type NoiseFloor, noiseFloor } from '../statistics/noise-floor.js';
import type { PairedEffect } from '../statistics/paired-effect.js';

/** Two arms compared on one metric. */
export interface Comparison {
  readonly arm: string;
  readonly against: string;
  readonly metric: MetricName;
  readonly effect: PairedEffect;
  /** Of the gate on it; null where it is only shown. */
  readonly bound: number | null;
  /** From the A/A run of the archive, at the same confidence. */
  readonly noise: NoiseFloor | null;
}

/**
 * The comparisons of a report: those of runtime gates, then every time that the protocol shows, each arm against the
 * first. An A/A run is compared in the same way.
 */
export function comparisonsOf({ run, noise }: JudgedArchive): Comparison[] {
  const { protocol } = run.part.protocol;
  const [first, ...others] = protocol.arms.map(({ name }) => name);
  const gated = protocol.gates.flatMap((gate) => (gate.check === 'ratio-at-most' ? [gate] : []));
  const shown = protocol.metrics
    .filter(isTimeMetric)
    .flatMap((metric) =>
      others
        .map((arm) => ({ arm, against: first!, metric, confidence: protocol.confidence }))
        .filter(
          ({ arm, against }) =>
            !gated.some((gate) => gate.arm === arm && gate.against === against && gate.metric === metric),
        ),
    );
  return [...gated, ...shown].map((wanted) => ({
    arm: wanted.arm,
    against: wanted.against,
    metric: wanted.metric,
    effect: compareArms(protocol, run.selection, wanted),
    bound: 'bound' in wanted ? Number(wanted.bound) : null,
    noise: noise === null ? null : noiseFloor(compareArms(protocol, noise.selection, wanted)),
  }));
}
