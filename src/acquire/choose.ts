import { comparePolicies, requestFor } from './compare.js';
import type { Placement } from './placement.js';
import type { PlacementRequest } from './plan.js';
import { isExact, policies } from './policies.js';
import type { PolicyName } from './policy.js';
import { type MachineRates, priceToken } from './price.js';

/**
 * What `auto` chooses among, the first of equal ones; all are exact. `certified` wants low-bit copies that are there: writing
 * them takes disk and minutes that nobody has asked for. Controls are never better. Forecasts move more bytes
 * than packets, and what their overlap is worth no plan can tell; an LRU depends on how a text repeats itself, so only a
 * hot set is here, which a profile prices.
 */
const candidates: readonly PolicyName[] = ['resident-sparse', 'phase', 'packets', 'retention', 'certified'];

/** `phase` reads prompts in long pieces, which is worth more than so small a part of the time of new tokens. */
const worthwhile = 1 / 32;

/** What a policy is expected to cost; null ms where it does not fit the budget. */
export interface PriceTag {
  readonly policy: PolicyName;
  readonly msPerToken: number | null;
}

/** A policy that cannot be chosen; the reason is a sentence without its full stop. */
export interface LeftOut {
  readonly policy: PolicyName;
  readonly reason: string;
}

/** What `auto` came to, and why. */
export interface PolicyChoice {
  readonly policy: PolicyName;
  /** A sentence without its full stop. */
  readonly reason: string;
  /** All that were looked at; empty where nothing had to be priced. */
  readonly prices: readonly PriceTag[];
  /** Candidates that were not looked at, and why. */
  readonly leftOut: readonly LeftOut[];
  readonly rates: MachineRates | null;
}

/**
 * The exact policy that is expected to need the least time for a new token. `measure` is asked only where there is a
 * choice: what fits is held, its zero rows skipped. `phase` where nothing fits, so that planning refuses with its figures.
 * `uncertified`: why `certified` is not to be chosen, null where it may.
 */
export async function choosePolicy(
  request: PlacementRequest,
  measure: (placement: Placement) => Promise<MachineRates>,
  uncertified: string | null,
): Promise<{ readonly choice: PolicyChoice; readonly request: PlacementRequest }> {
  const plain: PlacementRequest = { ...request, policy: 'phase' };
  const leftOut: LeftOut[] = [];
  if (request.profile === undefined) {
    leftOut.push({ policy: 'retention', reason: 'there is no activation profile to choose a hot set by' });
  }
  if (uncertified !== null) leftOut.push({ policy: 'certified', reason: uncertified });
  const chosen = (choice: Omit<PolicyChoice, 'leftOut'>) => ({
    choice: { ...choice, leftOut },
    request: requestFor(plain, choice.policy),
  });
  const eligible = candidates.filter(
    (candidate) => isExact(candidate) && !leftOut.some(({ policy }) => policy === candidate),
  );
  const compared = comparePolicies(plain, eligible);
  const fitting = compared.filter(({ placement }) => placement !== null);
  for (const { policy, placement, minimumBytes } of compared) {
    if (placement !== null || policy === 'resident-sparse') continue; // what does not fit is why there is a choice
    leftOut.push({ policy, reason: `it needs a budget of ${minimumBytes} bytes` });
  }
  const first = fitting[0];
  if (first === undefined) {
    return chosen({
      policy: 'phase',
      reason: 'the budget is too small for every policy',
      prices: [],
      rates: null,
    });
  }
  if (first.policy === 'resident-sparse') {
    return chosen({
      policy: first.policy,
      reason: 'the whole model fits the budget, so that nothing has to move',
      prices: [],
      rates: null,
    });
  }
  const rates = await measure(first.placement!);
  const prices = fitting.map(({ policy, placement }) => ({
    policy,
    msPerToken: priceToken(placement!, rates, request.hostTier ?? false).totalMs,
  }));
  let best = prices[0]!;
  for (const price of prices) if (price.msPerToken < best.msPerToken * (1 - worthwhile)) best = price;
  const others = prices.filter(({ policy }) => policy !== best.policy);
  const against = others.map(({ policy, msPerToken }) => `${policy} ${shown(msPerToken)}`).join(', ');
  const reason = `the model does not fit, and it (${policies[best.policy].summary}) is expected to take ${shown(best.msPerToken)} ms a token with its arithmetic${against === '' ? '' : ` (${against})`}`;
  return chosen({ policy: best.policy, reason, prices, rates });
}

function shown(ms: number): string {
  return ms >= 100 ? ms.toFixed(0) : ms >= 1 ? ms.toFixed(1) : ms.toFixed(2);
}
