import type { Launch, LaunchFacts } from '../../src/backend/cuda/launch.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import { openNull } from '../../src/backend/null/open-null.js';
import { type CaseGroup, placed } from './contract/case.js';
import { CaseRandom } from './contract/case-random.js';
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

/** Cases of the ops that the CUDA backend has kernels for; planning refuses the others, which only certificates need. */
export function cudaContractGroups(): CaseGroup[] {
  return contractGroups().filter(({ name }) => !name.startsWith('certify'));
}

/** Launches of every case of the backend contract, each case a submission. */
export function planCases(groups: readonly CaseGroup[], facts: LaunchFacts): Launch[] {
  const backend = openNull({ activeRows: () => [] });
  return groups.flatMap(({ cases }) =>
    cases.flatMap((one, number) => {
      const bench = new Workbench(backend, new CaseRandom(1, number));
      const launches = planLaunches(placed(one.build(bench)), facts);
      bench.release();
      return launches;
    }),
  );
}
