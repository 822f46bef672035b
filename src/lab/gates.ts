import { armValues, compareArms } from './comparison.js';
import { exactFraction, quotientText, withinShare } from './exact-bounds.js';
import { faithfulnessOf } from './faithfulness.js';
import type { Gate, GateFamily, StatisticName } from './gate-schema.js';
import { fractionText } from './lab-effect.js';
import { comparePrecision } from './precision.js';
import type { Protocol } from './protocol-schema.js';
import type { Selection } from './selection.js';
import type { PairedEffect } from './statistics/paired-effect.js';
import { nearestRank } from './statistics/percentile.js';

/**
 * `inconclusive`: the interval crosses the bound, or the run was broken off. `unmeasured`: data are missing that the
 * gate needs.
 */
export type Verdict = 'pass' | 'fail' | 'inconclusive' | 'unmeasured';

export interface GateResult {
  readonly name: string;
  readonly family: GateFamily;
  readonly check: Gate['check'];
  readonly verdict: Verdict;
  /** One line for a person. */
  readonly reason: string;
  /** Integers and exact quotients as text. */
  readonly figures: Readonly<Record<string, string>>;
  /** Of gates on a paired ratio. */
  readonly effect: PairedEffect | null;
}

type Judgement = Pick<GateResult, 'verdict' | 'reason'> & Partial<Pick<GateResult, 'figures' | 'effect'>>;

/** Judges every gate of a protocol by the records that count. No gate knows another's verdict. */
export function judgeGates(protocol: Protocol, selection: Selection): GateResult[] {
  return protocol.gates.map((gate) => {
    const judged = tempered(judge(gate, protocol, selection), selection);
    const { name, family, check } = gate;
    return { name, family, check, figures: {}, effect: null, ...judged };
  });
}

/**
 * What a run that is not whole can say: a failure that its records prove stays one; nothing else is decided.
 * Records that do not follow the schedule decide nothing at all.
 */
function tempered(judged: Judgement, { status, violations }: Selection): Judgement {
  if (violations.length > 0 && judged.verdict !== 'fail') {
    return {
      ...judged,
      verdict: 'inconclusive',
      reason: `the records do not follow the schedule: ${violations[0]}`,
    };
  }
  if (status === 'completed' || judged.verdict === 'fail') return judged;
  const how =
    status === 'killed' ? 'was killed' : status === 'different' ? 'stopped at a difference' : status;
  if (status === 'failed')
    return { ...judged, verdict: 'unmeasured', reason: `the run failed; ${judged.reason}` };
  return { ...judged, verdict: 'inconclusive', reason: `the run ${how}; ${judged.reason}` };
}

function judge(gate: Gate, protocol: Protocol, selection: Selection): Judgement {
  switch (gate.check) {
    case 'bit-equal':
    case 'tokens-equal':
      return judgeEquality(gate, protocol, selection);
    case 'token-parity':
    case 'relative-l2-at-most':
      return judgePrecision(gate, selection);
    case 'at-most':
    case 'at-least':
      return judgeBound(gate, selection);
    case 'per-token-at-most':
      return judgePerToken(gate, selection);
    case 'share-at-most':
      return judgeShare(gate, selection);
    case 'ratio-at-most':
      return judgeRatio(gate, protocol, selection);
    case 'complete':
      return judgeCompleteness(selection);
    case 'clean-end':
      return judgeEnd(selection);
  }
}

type GateOf<Check extends Gate['check']> = Extract<Gate, { check: Check }>;

function judgeEquality(
  gate: GateOf<'bit-equal'> | GateOf<'tokens-equal'>,
  protocol: Protocol,
  selection: Selection,
): Judgement {
  const what = gate.check === 'bit-equal' ? 'logits' : 'tokens';
  const { outcome, reason, positions } = faithfulnessOf(protocol, selection, gate.arms, what);
  if (outcome === 'different') return { verdict: 'fail', reason };
  const lacking = selection.blocks.filter((block) => block === null).length;
  if (outcome === 'unmeasured') return { verdict: 'unmeasured', reason };
  if (lacking > 0) return { verdict: 'unmeasured', reason: `${lacking} blocks are missing; ${reason}` };
  return { verdict: 'pass', reason, figures: { positions: String(positions) } };
}

function judgePrecision(
  gate: GateOf<'token-parity'> | GateOf<'relative-l2-at-most'>,
  selection: Selection,
): Judgement {
  const found = comparePrecision(selection, gate.arm, gate.against);
  if ('missing' in found) return { verdict: 'unmeasured', reason: found.missing };
  const { tokens, equalTokens, aligned, worstRelativeL2 } = found;
  const lacking = selection.blocks.filter((block) => block === null).length;
  if (lacking > 0) return { verdict: 'unmeasured', reason: `${lacking} blocks are missing` };
  if (gate.check === 'token-parity') {
    const figures = { equal: String(equalTokens), tokens: String(tokens), bound: gate.bound };
    const { numerator, denominator } = exactFraction(gate.bound);
    const holds = BigInt(equalTokens) * denominator >= numerator * BigInt(tokens);
    const text = `${equalTokens} of ${tokens} tokens are those of "${gate.against}"`;
    return {
      verdict: holds ? 'pass' : 'fail',
      reason: `${text}, ${holds ? '' : 'want '}a share of at least ${gate.bound}`,
      figures,
    };
  }
  if (worstRelativeL2 === null)
    return { verdict: 'unmeasured', reason: `"${gate.arm}" or "${gate.against}" kept no logits` };
  const worst = Number.isFinite(worstRelativeL2) ? fractionText(worstRelativeL2) : 'not finite';
  const figures = { worst, aligned: String(aligned), bound: gate.bound };
  const holds = worstRelativeL2 <= Number(gate.bound);
  return {
    verdict: holds ? 'pass' : 'fail',
    reason: `${worst} at the worst of ${aligned} aligned positions, ${holds ? '' : 'want '}<= ${gate.bound}`,
    figures,
  };
}

function judgeBound(gate: GateOf<'at-most'> | GateOf<'at-least'>, selection: Selection): Judgement {
  const values = armValues(selection, gate.arm, gate.metric);
  const known = values.filter((value) => value !== null);
  const upper = gate.check === 'at-most';
  const bound = BigInt(gate.bound);
  const holds = (value: bigint): boolean => (upper ? value <= bound : value >= bound);
  const sign = upper ? '<=' : '>=';
  if (gate.statistic === 'each') {
    const broken = known.find((value) => !holds(value));
    const worst = known.reduce<bigint | null>(
      (found, value) => (found === null || (upper ? value > found : value < found) ? value : found),
      null,
    );
    const figures = {
      ...(worst === null ? {} : { worst: String(worst) }),
      bound: gate.bound,
      count: String(known.length),
    };
    if (broken !== undefined) return { verdict: 'fail', reason: `${worst}, want ${sign} ${bound}`, figures };
    if (known.length < values.length || known.length === 0)
      return missing(known.length, values.length, gate.metric, figures);
    return { verdict: 'pass', reason: `${worst} ${sign} ${bound} in each of ${known.length}`, figures };
  }
  const found = nearestRank(known, percentOf[gate.statistic]);
  const figures = {
    ...(found === null ? {} : { value: String(found.value) }),
    bound: gate.bound,
    count: String(known.length),
  };
  if (found === null || known.length < values.length)
    return missing(known.length, values.length, gate.metric, figures);
  const text = `${gate.statistic} of ${found.count} is ${found.value}`;
  if (holds(found.value)) return { verdict: 'pass', reason: `${text}, ${sign} ${bound}`, figures };
  return { verdict: 'fail', reason: `${text}, want ${sign} ${bound}`, figures };
}

/** The median of a gate is nearest-rank, too: a value that was measured. */
const percentOf: Readonly<Record<Exclude<StatisticName, 'each'>, number>> = {
  median: 50,
  p90: 90,
  p95: 95,
  p99: 99,
};

function judgePerToken(gate: GateOf<'per-token-at-most'>, selection: Selection): Judgement {
  const value = total(armValues(selection, gate.arm, gate.metric));
  const tokens = total(armValues(selection, gate.arm, 'new-tokens'));
  if (value === null || tokens === null || tokens === 0n) {
    return {
      verdict: 'unmeasured',
      reason: `"${gate.metric}" or the tokens of "${gate.arm}" are not known of every trial`,
    };
  }
  const figures = {
    sum: String(value),
    tokens: String(tokens),
    perToken: quotientText(value, tokens),
    bound: gate.bound,
  };
  const holds = value <= BigInt(gate.bound) * tokens;
  const text = `${figures.perToken} a token`;
  return {
    verdict: holds ? 'pass' : 'fail',
    reason: `${text}, ${holds ? '' : 'want '}<= ${gate.bound}`,
    figures,
  };
}

function judgeShare(gate: GateOf<'share-at-most'>, selection: Selection): Judgement {
  const value = total(armValues(selection, gate.arm, gate.metric));
  const of = total(armValues(selection, gate.of, gate.metric));
  if (value === null || of === null || of === 0n) {
    return {
      verdict: 'unmeasured',
      reason: `"${gate.metric}" of "${gate.arm}" or "${gate.of}" is not known of every trial, or is zero`,
    };
  }
  const figures = { sum: String(value), of: String(of), share: quotientText(value, of), bound: gate.bound };
  const holds = withinShare(value, of, gate.bound);
  const text = `${figures.share} of "${gate.of}"`;
  return {
    verdict: holds ? 'pass' : 'fail',
    reason: `${text}, ${holds ? '' : 'want '}<= ${gate.bound}`,
    figures,
  };
}

function judgeRatio(gate: GateOf<'ratio-at-most'>, protocol: Protocol, selection: Selection): Judgement {
  const effect = compareArms(protocol, selection, gate);
  const bound = Number(gate.bound);
  const figures = { pairs: String(effect.pairs), bound: gate.bound };
  if (effect.leftOut > 0 || effect.pairs === 0) {
    return {
      verdict: 'unmeasured',
      reason: `${effect.leftOut} of ${effect.leftOut + effect.pairs} pairs do not hold "${gate.metric}"`,
      figures,
      effect,
    };
  }
  if (effect.interval === null || effect.ratio === null) {
    return {
      verdict: 'inconclusive',
      reason: effect.warnings.at(-1)?.text ?? 'there is no interval',
      figures,
      effect,
    };
  }
  const { low, high, confidence } = effect.interval;
  const text = `ratio ${effect.ratio.toFixed(4)}, ${100 * confidence} % interval ${low.toFixed(4)} to ${high.toFixed(4)}`;
  if (high <= bound) return { verdict: 'pass', reason: `${text}, at most ${gate.bound}`, figures, effect };
  if (low > bound) return { verdict: 'fail', reason: `${text}, want at most ${gate.bound}`, figures, effect };
  return { verdict: 'inconclusive', reason: `${text} crosses ${gate.bound}`, figures, effect };
}

function judgeCompleteness({ blocks, status }: Selection): Judgement {
  const whole = blocks.filter((block) => block !== null).length;
  const figures = { blocks: String(blocks.length), whole: String(whole) };
  if (whole === blocks.length && status === 'completed') {
    return { verdict: 'pass', reason: `all ${whole} blocks were completed`, figures };
  }
  return { verdict: 'unmeasured', reason: `${whole} of ${blocks.length} blocks were completed`, figures };
}

function judgeEnd({ ended }: Selection): Judgement {
  if (ended === null) return { verdict: 'unmeasured', reason: 'the end of the run was not recorded' };
  const { heldBytes, childrenLeft, scratchLeft } = ended.endState;
  const figures = { heldBytes, childrenLeft: String(childrenLeft), scratchLeft: String(scratchLeft) };
  const clean = BigInt(heldBytes) === 0n && childrenLeft === 0 && scratchLeft === 0;
  const text = `${heldBytes} bytes held, ${childrenLeft} children and ${scratchLeft} scratch files left`;
  return { verdict: clean ? 'pass' : 'fail', reason: clean ? text : `${text}, want none`, figures };
}

function missing(known: number, of: number, metric: string, figures: Record<string, string>): Judgement {
  return { verdict: 'unmeasured', reason: `${of - known} of ${of} trials do not hold "${metric}"`, figures };
}

function total(values: readonly (bigint | null)[]): bigint | null {
  if (values.length === 0) return null;
  return values.reduce<bigint | null>(
    (sum, value) => (sum === null || value === null ? null : sum + value),
    0n,
  );
}
