import { BudgetError } from '../base/errors.js';
import type { Placement } from './placement.js';
import { type PlacementRequest, planPlacement } from './plan.js';
import { type PolicyName, policyNames } from './policy.js';

/** What a policy would come to under the same request. */
export interface PricedPolicy {
  readonly policy: PolicyName;
  /** Null where the budget is too small for it. */
  readonly placement: Placement | null;
  /** Smallest budget that it would accept. */
  readonly minimumBytes: number;
}

/** Plans a request by several policies, in their order. Throws as `planPlacement`, but for budgets that are too small. */
export function comparePolicies(
  request: PlacementRequest,
  policies: readonly PolicyName[] = policyNames,
): PricedPolicy[] {
  return policies.map((policy) => {
    try {
      const placement = planPlacement(requestFor(request, policy));
      return { policy, placement, minimumBytes: placement.minimumBytes };
    } catch (error) {
      if (!(error instanceof BudgetError) || error.code !== 'budget-too-small') throw error;
      return { policy, placement: null, minimumBytes: Number(error.data.minimumBytes) };
    }
  });
}

/** The same request by another policy. A hot set is what retention does best, and all that it needs is a profile. */
export function requestFor(request: PlacementRequest, policy: PolicyName): PlacementRequest {
  const { profile } = request;
  if (policy !== 'retention' || request.policy === policy || profile === undefined)
    return { ...request, policy };
  return { retain: { kind: 'hot', profile }, ...request, policy };
}
