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

/** Plans a request by every policy, in the order of their names' list. Throws as `planPlacement`, but for small budgets. */
export function comparePolicies(request: PlacementRequest): PricedPolicy[] {
  return policyNames.map((policy) => {
    const { retain: _, ...rest } = request;
    const own = request.policy === policy ? request : { ...rest, ...hotWhereKnown(request), policy };
    try {
      const placement = planPlacement(own);
      return { policy, placement, minimumBytes: placement.minimumBytes };
    } catch (error) {
      if (!(error instanceof BudgetError) || error.code !== 'budget-too-small') throw error;
      return { policy, placement: null, minimumBytes: Number(error.data.minimumBytes) };
    }
  });
}

/** A hot set is what retention does best, and all that it needs is a profile. */
function hotWhereKnown({ profile, retain }: PlacementRequest): Partial<PlacementRequest> {
  if (retain !== undefined) return { retain };
  return profile === undefined ? {} : { retain: { kind: 'hot', profile } };
}
