import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import { alignedGroups } from './contract/aligned-cases.js';
import { attentionGroups } from './contract/attention-cases.js';
import { type CaseGroup, type ContractCase, placed } from './contract/case.js';
import { CaseRandom } from './contract/case-random.js';
import { certifyGroups } from './contract/certify-cases.js';
import { elementwiseGroups } from './contract/elementwise-cases.js';
import { kvOverflowContract } from './contract/kv-overflow.js';
import { linearGroups } from './contract/linear-cases.js';
import { quantisedGroups } from './contract/quantised-cases.js';
import { sparseGroups } from './contract/sparse-cases.js';
import { storageContract } from './contract/storage-contract.js';
import { difference, type Snapshot, Workbench } from './contract/workbench.js';

const seed = 20261130;
const threadCounts = [1, 2, 3, 5];

/**
 * The contract of a backend (docs/numerics.md and src/backend/backend.ts), run against the oracle: after every case
 * all buffers must hold equal bytes, NaN being equal to NaN, at each thread count. `open` opens the backend anew; `groups`
 * are fewer where it has no kernels for some op.
 */
export function describeBackendContract(
  name: string,
  open: (threads: number) => Promise<Backend>,
  groups: readonly CaseGroup[] = contractGroups(),
): void {
  describe(`backend contract: ${name} (seed ${seed})`, () => {
    describe('arithmetic', () => arithmeticContract(open, groups));
    describe('storage', () => storageContract(seed, () => open(2)));
    describe('KV overflow', () => kvOverflowContract(() => open(2)));
  });
}

/** Every op's cases. */
export function contractGroups(): CaseGroup[] {
  return [
    ...linearGroups(),
    ...sparseGroups(),
    ...quantisedGroups(),
    ...elementwiseGroups(),
    ...attentionGroups(),
    ...alignedGroups(),
    ...certifyGroups(),
  ];
}

function arithmeticContract(open: (threads: number) => Promise<Backend>, groups: readonly CaseGroup[]): void {
  const backends: Backend[] = [];
  const oracle = openOracle();
  beforeAll(async () => {
    for (const threads of threadCounts) backends.push(await open(threads));
  });
  afterAll(async () => {
    await Promise.all([oracle, ...backends].map((backend) => backend.close()));
  });

  let caseNumber = 1;
  for (const group of groups) {
    const numbered = group.cases.map((one) => ({ one, number: caseNumber++ }));
    it(`${group.name}: ${group.cases.length} cases`, async () => {
      for (const { one, number } of numbered) {
        const expected = await runCase(oracle, one, number);
        for (const [index, backend] of backends.entries()) {
          const found = difference(expected, await runCase(backend, one, number));
          const where = `${one.name} (seed ${seed}, case ${number}), ${threadCounts[index]} threads`;
          if (found !== null) expect.fail(`${where}: ${found}`);
        }
      }
    });
  }
}

/** What all buffers of a case hold after a backend ran it. */
export async function runCase(backend: Backend, one: ContractCase, number: number): Promise<Snapshot[]> {
  const bench = new Workbench(backend, new CaseRandom(seed, number));
  try {
    await backend.submit(placed(one.build(bench)));
    return await bench.snapshots();
  } finally {
    bench.release();
  }
}
