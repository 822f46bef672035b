import { certified } from './certified.js';
import { extents } from './extents.js';
import { forecast } from './forecast.js';
import { packets } from './packets.js';
import { packetsStaged } from './packets-staged.js';
import { phase } from './phase.js';
import { type AcquisitionPolicy, type PolicyName, policyNames } from './policy.js';
import { resident } from './resident.js';
import { residentQ4, residentQ8 } from './resident-quantised.js';
import { residentSparse } from './resident-sparse.js';
import { retention } from './retention.js';
import { stream } from './stream.js';

/** Every policy by name; a new one is its file and a line here. */
export const policies: Readonly<Record<PolicyName, AcquisitionPolicy>> = {
  resident,
  'resident-sparse': residentSparse,
  stream,
  extents,
  packets,
  'packets-staged': packetsStaged,
  retention,
  forecast,
  phase,
  certified,
  'resident-q8': residentQ8,
  'resident-q4': residentQ4,
};

/** Whether a policy gives the bits of the checkpoint's weights. */
export function isExact(policy: PolicyName): boolean {
  return policies[policy].quantised === undefined;
}

export const exactPolicyNames: readonly PolicyName[] = policyNames.filter(isExact);
