import type { Launch, LaunchFacts } from '../../src/backend/cuda/launch.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import { openNull } from '../../src/backend/null/open-null.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import { type CaseGroup, placed } from './contract/case.js';
import { CaseRandom } from './contract/case-random.js';
import { greedyGroups } from './contract/greedy-cases.js';
import { heldGroups } from './contract/held-cases.js';
import { Workbench } from './contract/workbench.js';
import { contractGroups } from './contract.js';

/** An H200 as the planner sees it. */
export const cudaFacts: LaunchFacts = {
  architecture: 90,
  multiprocessors: 132,
  sharedBytes: 232_448,
  overlaps: true,
  statusAddress: 4096,
};

/** A Turing card: the oldest architecture, with the least shared memory and no clusters. */
export const oldestFacts: LaunchFacts = {
  ...cudaFacts,
  architecture: 75,
  overlaps: false,
  multiprocessors: 40,
  sharedBytes: 65_536,
};

/** All cases: the CUDA backend has kernels for every op, those of a host tier among them. */
export function cudaContractGroups(): CaseGroup[] {
  allGroups ??= [...contractGroups(), ...heldGroups(), ...greedyGroups()];
  return allGroups;
}

let allGroups: CaseGroup[] | null = null;
const built = new Map<CaseGroup, readonly (readonly PlacedOp[])[]>();

/** Launches of every case of the backend contract, each case a submission. Operands of a group are made once. */
export function planCases(groups: readonly CaseGroup[], facts: LaunchFacts): Launch[] {
  return groups.flatMap((group) => {
    let cases = built.get(group);
    if (cases === undefined) {
      const backend = openNull({ activeRows: () => [] });
      cases = group.cases.map((one, number) => {
        const bench = new Workbench(backend, new CaseRandom(1, number));
        const ops = placed(one.build(bench));
        bench.release();
        return ops;
      });
      built.set(group, cases);
    }
    return cases.flatMap((ops) => planLaunches(ops, facts));
  });
}
