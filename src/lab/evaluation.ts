import { type ExitCode, exitCodes } from '../base/errors.js';
import { compareArms } from './comparison.js';
import { exitCodeOf, exitCodeOfVerdict, weightiestExitCode } from './exit-codes.js';
import { type GateResult, judgeGates, type Verdict } from './gates.js';
import type { MetricName } from './metric-names.js';
import type { Protocol } from './protocol-schema.js';
import type { Manifest, RunRecord } from './record-format.js';
import type { Selection } from './selection.js';
import { selectRun } from './sequential.js';
import { type NoiseFloor, noiseFloor } from './statistics/noise-floor.js';

/** Everything that a run says, recomputed from its records; equal records give an equal evaluation. */
export interface Evaluation {
  readonly variant: Manifest['variant'];
  readonly status: Selection['status'];
  /** Empty for an A/A run: identical arms qualify nothing. */
  readonly gates: readonly GateResult[];
  /** The weightiest of the gates' verdicts. */
  readonly verdict: Verdict;
  /** Of an A/A run, for each arm against the first and each metric that a runtime gate uses. */
  readonly noiseFloors: readonly NoiseFloorRow[];
  readonly deviations: readonly string[];
  readonly violations: readonly string[];
  readonly exitCode: ExitCode;
}

export interface NoiseFloorRow {
  readonly metric: MetricName;
  readonly arm: string;
  readonly against: string;
  readonly floor: NoiseFloor | null;
}

/** Judges a run by its protocol and records alone. */
export function evaluateRun(
  protocol: Protocol,
  manifest: Manifest,
  records: readonly RunRecord[],
): Evaluation {
  const selection = selectRun(protocol, manifest, records);
  const gates = manifest.variant === 'aa' ? [] : judgeGates(protocol, selection);
  const noiseFloors = manifest.variant === 'aa' ? floorsOf(protocol, selection) : [];
  const measured =
    manifest.variant === 'aa'
      ? [
          noiseFloors.length > 0 && noiseFloors.every(({ floor }) => floor !== null)
            ? 'pass'
            : ('unmeasured' as const),
        ]
      : gates.map(({ verdict }) => verdict);
  const verdicts = measured as Verdict[];
  return {
    variant: manifest.variant,
    status: selection.status,
    gates,
    verdict: weightiestVerdict(verdicts),
    noiseFloors,
    deviations: selection.deviations,
    violations: selection.violations,
    exitCode: exitCodeOf(verdicts, selection.violations.length > 0 ? [exitCodes.tampered] : []),
  };
}

function floorsOf(protocol: Protocol, selection: Selection): NoiseFloorRow[] {
  const against = protocol.arms[0]!.name;
  const metrics = new Set(
    protocol.gates.flatMap((gate) => (gate.check === 'ratio-at-most' ? [gate.metric] : [])),
  );
  return [...metrics].flatMap((metric) =>
    protocol.arms.slice(1).map(({ name: arm }) => {
      const effect = compareArms(protocol, selection, {
        arm,
        against,
        metric,
        confidence: protocol.confidence,
      });
      return { metric, arm, against, floor: effect.leftOut > 0 ? null : noiseFloor(effect) };
    }),
  );
}

/** By the precedence of exit codes: unmeasured, then fail, then inconclusive, then pass. */
export function weightiestVerdict(verdicts: readonly Verdict[]): Verdict {
  const code = weightiestExitCode(verdicts.map((verdict) => exitCodeOfVerdict[verdict]));
  const order: readonly Verdict[] = ['unmeasured', 'fail', 'inconclusive', 'pass'];
  return order.find((verdict) => verdicts.length > 0 && exitCodeOfVerdict[verdict] === code) ?? 'unmeasured';
}
