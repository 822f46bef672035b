import { comparePolicies, requestFor } from './compare.js';
import type { Placement } from './placement.js';
import type { PlacementRequest } from './plan.js';
import type { PolicyName } from './policy.js';

/**
 * What `auto` chooses among, the first of equal ones. Controls are never better. Forecasts move more bytes than packets,
 * and what their overlap is worth no plan can tell; an LRU depends on how a text repeats itself, so only a hot set is
 * here, which a profile prices.
 */
const candidates: readonly PolicyName[] = ['resident-sparse', 'phase', 'packets', 'retention'];

/** `phase` reads prompts in long pieces, which is worth more than so small a part of the bytes of new tokens. */
const worthwhile = 1 / 32;

/**
 * The request by the exact policy that is expected to be the cheapest for new tokens: by time where the rates of the
 * link are known, else by bytes. By `phase` where none fits, so that planning refuses with its figures.
 */
export function chooseByPrice(request: PlacementRequest): PlacementRequest {
  const known = request.profile !== undefined;
  const eligible = candidates.filter((policy) => policy !== 'retention' || known);
  const priced = comparePolicies({ ...request, policy: 'phase' }, eligible);
  let best: { policy: PolicyName; price: number } | null = null;
  for (const { policy, placement } of priced) {
    if (placement === null) continue;
    const price = priceOf(placement);
    if (best === null || price < best.price * (1 - worthwhile)) best = { policy, price };
  }
  return requestFor(request, best?.policy ?? 'phase');
}

function priceOf({ predictedMsPerToken, moved }: Placement): number {
  return predictedMsPerToken ?? moved.expectedBytes;
}
