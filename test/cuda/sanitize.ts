import type { Launch } from '../../src/backend/cuda/launch.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import { openNull } from '../../src/backend/null/open-null.js';
import type { Op } from '../../src/backend/ops.js';
import { DefectError } from '../../src/base/errors.js';
import { type ContractCase, placed } from '../backend/contract/case.js';
import { CaseRandom } from '../backend/contract/case-random.js';
import { Workbench } from '../backend/contract/workbench.js';
import { cudaContractGroups, cudaFacts } from '../backend/cuda-support.js';

/** Cases that are looked at in a group, evenly over it: making operands is what takes the time. */
const mostOfGroup = 30;

/** As the backend plans in native numerics; where rounded activations lie decides nothing. */
export const nativeFacts = { ...cudaFacts, nativeRoom: 1 << 20 };

/** A case of the contract, by the kernels that it launches. */
interface Candidate {
  readonly one: ContractCase;
  readonly number: number;
  readonly native: boolean;
  readonly kernels: readonly string[];
  readonly threads: number;
}

/**
 * The fewest and smallest cases of the contract that launch every kernel once, for `compute-sanitizer`: a race or a stray
 * access does not need large operands to show, and the tools slow kernels down a thousandfold.
 */
export async function sanitizeCases(log: (line: string) => void): Promise<void> {
  const gpu = await openCuda({ graphs: false, numerics: 'native' });
  try {
    const { architecture, multiprocessors, sharedBytes } = gpu.device;
    const chosen = smallest({ ...nativeFacts, architecture, multiprocessors, sharedBytes });
    for (const { one, number, native } of chosen) {
      const bench = new Workbench(gpu, new CaseRandom(1, number));
      await gpu.submit(placed(native ? one.build(bench).map(asNative) : one.build(bench)));
      bench.release();
    }
    const kernels = new Set(chosen.flatMap((candidate) => candidate.kernels));
    log(`sanitize: ${kernels.size} kernels in ${chosen.length} cases, each launched`);
  } finally {
    await gpu.close();
  }
}

/** Cases in the order of their threads, each that launches a kernel which none before it does. */
export function smallest(facts: typeof cudaFacts): Candidate[] {
  const bare = openNull({ activeRows: () => [] });
  const candidates: Candidate[] = [];
  let number = 0;
  for (const { cases } of cudaContractGroups())
    for (const [index, one] of cases.entries()) {
      const own = number++;
      if (index % Math.ceil(cases.length / mostOfGroup) !== 0) continue;
      const bench = new Workbench(bare, new CaseRandom(1, own));
      const ops = one.build(bench);
      bench.release();
      for (const native of [false, true]) {
        const launches = launchesOf(native ? ops.map(asNative) : ops, facts);
        const threads = launches.reduce(
          (sum, { grid, threads }) => sum + threads * grid[0] * grid[1] * grid[2],
          0,
        );
        candidates.push({ one, number: own, native, kernels: launches.map(({ kernel }) => kernel), threads });
      }
    }
  candidates.sort((a, b) => a.threads - b.threads);
  const seen = new Set<string>();
  return candidates.filter(({ kernels }) => {
    const fresh = kernels.some((kernel) => !seen.has(kernel));
    for (const kernel of kernels) seen.add(kernel);
    return fresh;
  });
}

/** None where the backend has no kernel for an op: the contract leaves such cases out, too. */
function launchesOf(ops: readonly Op[], facts: typeof cudaFacts): readonly Launch[] {
  try {
    return planLaunches(placed(ops), facts);
  } catch (error) {
    if (error instanceof DefectError) return [];
    throw error;
  }
}

function asNative(op: Op): Op {
  const product = op.kind === 'linear' || op.kind === 'active-inputs' || op.kind === 'active-outputs';
  return product ? { ...op, numerics: 'native' } : op;
}
