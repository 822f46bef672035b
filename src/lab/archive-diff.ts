import { UsageError } from '../base/errors.js';
import { armValues } from './comparison.js';
import type { Verdict } from './gates.js';
import { effectSummary } from './lab-effect.js';
import type { EffectSummary } from './lab-predicate.js';
import { countedTrials, type JudgedArchive } from './lab-receipt.js';
import { isTimeMetric, type MetricName } from './metric-names.js';
import { allArms } from './protocol-schema.js';
import { ascending, nearestRank } from './statistics/percentile.js';

/**
 * Two archives of one protocol, side by side. Figures stand beside each other and are never put into one statistic: the
 * trials of two runs did not share a machine's state, so no pair of them says anything of an effect.
 */
export interface ArchiveDiff {
  readonly protocol: string;
  /** True where every logits row that both archives hold is equal. */
  readonly sameBits: boolean;
  readonly sameVerdicts: boolean;
  readonly bits: readonly BitsDiff[];
  readonly gates: readonly GateDiff[];
  readonly metrics: readonly MetricDiff[];
}

export interface BitsDiff {
  readonly arm: string;
  readonly item: number;
  /** Rows of logits that both hold. */
  readonly positions: number;
  /** `absent`: one of the archives has no logits of it. */
  readonly verdict: 'equal' | 'different' | 'absent';
}

export interface GateDiff {
  readonly name: string;
  readonly verdicts: readonly [Verdict, Verdict];
  /** Each archive's own effect, where the gate has one. */
  readonly effects: readonly [EffectSummary | null, EffectSummary | null];
}

export interface MetricDiff {
  readonly arm: string;
  readonly metric: MetricName;
  /** Nearest-rank medians as decimals; null where nothing was measured. */
  readonly medians: readonly [string | null, string | null];
  readonly counts: readonly [number, number];
  /** Of times null: clocks of two runs are not compared. */
  readonly equal: boolean | null;
}

/**
 * Compares two archives that an audit has found to hold.
 * @throws UsageError `protocols-differ`, `variants-differ`
 */
export function diffArchives(a: JudgedArchive, b: JudgedArchive): ArchiveDiff {
  const [left, right] = [a.run, b.run];
  const { protocol, digest } = left.part.protocol;
  if (digest !== right.part.protocol.digest) {
    throw new UsageError(
      'protocols-differ',
      `Cannot compare the archives: one is of protocol "${protocol.name}" ${digest}, the other of "${right.part.protocol.protocol.name}" ${right.part.protocol.digest}`,
    );
  }
  if (left.part.manifest.variant !== right.part.manifest.variant) {
    throw new UsageError(
      'variants-differ',
      'Cannot compare the archives: one is an A/A run, the other is not',
    );
  }
  const arms = allArms(protocol).map(({ name }) => name);
  const bits = arms.flatMap((arm) => bitsOf(a, b, arm));
  const gates = left.evaluation.gates.map(({ name, verdict, effect }, index): GateDiff => {
    const other = right.evaluation.gates[index]!;
    const effects = [effect, other.effect].map((found) => (found === null ? null : effectSummary(found)));
    return { name, verdicts: [verdict, other.verdict], effects: [effects[0]!, effects[1]!] };
  });
  const metrics = protocol.metrics.flatMap((metric) => arms.map((arm) => metricOf(a, b, arm, metric)));
  return {
    protocol: digest,
    sameBits: bits.every(({ verdict }) => verdict !== 'different'),
    sameVerdicts: gates.every(({ verdicts: [first, second] }) => first === second),
    bits,
    gates,
    metrics,
  };
}

/** Logits digests have no salt, so rows of two runs can be compared; items are those of the protocol. */
function bitsOf(a: JudgedArchive, b: JudgedArchive, arm: string): BitsDiff[] {
  const rows = [a, b].map((archive) => {
    const byItem = new Map<number, string[]>();
    for (const { slot, requests } of countedTrials(archive.run.selection, arm)) {
      if (!byItem.has(slot.item))
        byItem.set(
          slot.item,
          requests.flatMap(({ logitsDigests }) => logitsDigests),
        );
    }
    return byItem;
  });
  const items = [...new Set(rows.flatMap((byItem) => [...byItem.keys()]))].sort((x, y) => x - y);
  return items.map((item) => {
    const [first, second] = rows.map((byItem) => byItem.get(item) ?? []) as [string[], string[]];
    const positions = Math.min(first.length, second.length);
    if (positions === 0) return { arm, item, positions, verdict: 'absent' };
    const equal = first.length === second.length && first.every((digest, index) => digest === second[index]);
    return { arm, item, positions, verdict: equal ? 'equal' : 'different' };
  });
}

function metricOf(a: JudgedArchive, b: JudgedArchive, arm: string, metric: MetricName): MetricDiff {
  const [first, second] = [figuresOf(a, arm, metric), figuresOf(b, arm, metric)];
  const same =
    first.count === second.count && first.known.every((value, index) => value === second.known[index]);
  return {
    arm,
    metric,
    medians: [first.median, second.median],
    counts: [first.count, second.count],
    equal: isTimeMetric(metric) ? null : same,
  };
}

function figuresOf({ run }: JudgedArchive, arm: string, metric: MetricName): Figures {
  const known = ascending(armValues(run.selection, arm, metric).filter((value) => value !== null));
  return { count: known.length, known, median: nearestRank(known, 50)?.value.toString() ?? null };
}

interface Figures {
  readonly count: number;
  readonly known: readonly bigint[];
  readonly median: string | null;
}
