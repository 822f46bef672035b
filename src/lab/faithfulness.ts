import type { Protocol } from './protocol-schema.js';
import { allArms } from './protocol-schema.js';
import type { Difference, RequestRecord, TrialRecord } from './record-format.js';
import type { Selection } from './selection.js';

/** What the comparison of an arm's trials came to. */
export interface Faithfulness {
  readonly outcome: 'equal' | 'different' | 'unmeasured';
  readonly reason: string;
  /** Positions (new tokens) that were compared and equal. */
  readonly positions: number;
}

/** What is compared of a request's result. */
export type Result = Pick<RequestRecord, 'logitsDigests' | 'tokenIdsDigest' | 'newTokens'>;

/**
 * The first difference between two results of one item, in the order in which tokens come; null where all is equal. Digests of
 * tokens are compared where both have `oneSalt`; those of two runs differ whatever the tokens are.
 */
export function firstDifference(
  expected: readonly Result[],
  found: readonly Result[],
  oneSalt = true,
): Difference | null {
  const requests = Math.max(expected.length, found.length);
  for (let request = 0; request < requests; request++) {
    const [wanted, given] = [expected[request], found[request]];
    if (wanted === undefined || given === undefined) {
      return {
        request,
        index: null,
        what: 'length',
        expected: String(expected.length),
        found: String(found.length),
      };
    }
    const both = wanted.logitsDigests.length > 0 && given.logitsDigests.length > 0;
    const shared = Math.min(wanted.logitsDigests.length, given.logitsDigests.length);
    for (let index = 0; index < shared; index++) {
      const [a, b] = [wanted.logitsDigests[index]!, given.logitsDigests[index]!];
      if (a !== b) return { request, index, what: 'logits', expected: a, found: b };
    }
    if (
      wanted.newTokens !== given.newTokens ||
      (both && wanted.logitsDigests.length !== given.logitsDigests.length)
    ) {
      return {
        request,
        index: null,
        what: 'length',
        expected: String(wanted.newTokens),
        found: String(given.newTokens),
      };
    }
    if (oneSalt && wanted.tokenIdsDigest !== given.tokenIdsDigest) {
      return {
        request,
        index: null,
        what: 'tokens',
        expected: wanted.tokenIdsDigest,
        found: given.tokenIdsDigest,
      };
    }
  }
  return null;
}

/**
 * Compares every trial of `arms`, declared warm-ups and repeated attempts included, with the reference of its item
 * where the protocol has one in their group, else with every other trial of the group on that item.
 */
export function faithfulnessOf(
  protocol: Protocol,
  selection: Selection,
  arms: readonly string[],
  what: 'logits' | 'tokens',
): Faithfulness {
  const group = allArms(protocol).find(({ name }) => arms.includes(name))?.group;
  const peers = allArms(protocol).filter((arm) => arm.group === group);
  const reference = peers.find(({ name }) => name === protocol.reference?.arm.name);
  const compared = new Set(
    reference === undefined ? peers.map(({ name }) => name) : [...arms, reference.name],
  );
  let positions = 0;
  for (const [item, trials] of byItem(selection.judged)) {
    const all = trials.filter(({ slot }) => compared.has(slot.arm));
    const mine = all.filter(({ slot }) => arms.includes(slot.arm));
    if (mine.length === 0) continue;
    const base = reference === undefined ? all[0]! : all.find(({ slot }) => slot.arm === reference.name);
    if (
      base === undefined ||
      (reference === undefined && all.every(({ slot }) => slot.arm === base.slot.arm))
    ) {
      return unmeasured(`nothing was run on item ${item + 1} to compare "${mine[0]!.slot.arm}" with`);
    }
    const lacking = all.find(({ requests }) => !requests.every((request) => holds(request, what)));
    // Equality is transitive: what equals the base equals everything else
    for (const trial of all) {
      if (trial === base) continue;
      const difference = relevant(differenceOf(base, trial), base, trial, what);
      if (difference !== null) return different(difference, trial, base);
    }
    if (lacking !== undefined) return unmeasured(`record ${lacking.sequence} holds no digests of ${what}`);
    positions += mine.flatMap(({ requests }) => requests).reduce((sum, { newTokens }) => sum + newTokens, 0);
  }
  const silent = arms.find((name) => !selection.judged.some(({ slot }) => slot.arm === name));
  if (silent !== undefined) return unmeasured(`no trial of "${silent}" gave a result`);
  return { outcome: 'equal', reason: `${positions} positions are equal`, positions };
}

function differenceOf(base: TrialRecord, trial: TrialRecord): Difference | null {
  return firstDifference(
    base.requests,
    trial.requests,
    base.borrowed === undefined && trial.borrowed === undefined,
  );
}

function relevant(
  difference: Difference | null,
  expected: TrialRecord,
  found: TrialRecord,
  what: 'logits' | 'tokens',
): Difference | null {
  if (what === 'logits' || difference?.what !== 'logits') return difference;
  const bare = ({ requests }: TrialRecord) => requests.map((request) => ({ ...request, logitsDigests: [] }));
  return firstDifference(bare(expected), bare(found));
}

function holds({ logitsDigests, newTokens }: RequestRecord, what: 'logits' | 'tokens'): boolean {
  return what === 'tokens' || (logitsDigests.length === newTokens && newTokens > 0);
}

function different(difference: Difference, trial: TrialRecord, other: TrialRecord): Faithfulness {
  const at = difference.index === null ? '' : `, new token ${difference.index + 1}`;
  const reason = `record ${trial.sequence} ("${trial.slot.arm}") differs from record ${other.sequence} ("${other.slot.arm}") in ${difference.what}: item ${trial.slot.item + 1}, request ${difference.request + 1}${at}`;
  return { outcome: 'different', reason, positions: 0 };
}

function unmeasured(reason: string): Faithfulness {
  return { outcome: 'unmeasured', reason, positions: 0 };
}

function byItem(trials: readonly TrialRecord[]): Map<number, TrialRecord[]> {
  const items = new Map<number, TrialRecord[]>();
  for (const trial of trials) items.set(trial.slot.item, [...(items.get(trial.slot.item) ?? []), trial]);
  return items;
}
