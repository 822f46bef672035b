import { expect, it } from 'vitest';
import { kernelFolder, unitOf } from '../../src/backend/cuda/kernel-sources.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import { openNull } from '../../src/backend/null/open-null.js';
import { nativeFacts, smallest } from '../cuda/sanitize.js';
import { placed } from './contract/case.js';
import { CaseRandom } from './contract/case-random.js';
import { Workbench } from './contract/workbench.js';

it('the cases for the sanitizer are few and launch kernels of every source', () => {
  const chosen = smallest(nativeFacts);
  const covered = new Set(chosen.flatMap(({ kernels }) => kernels));
  const sources = new Set([...covered].map((kernel) => unitOf(kernel).split(' ')[0]));
  for (const source of [
    'rows.cu',
    'attention.cu',
    'linear-rows.cu',
    'linear-tiles.cu',
    'sparse.cu',
    'native.cu',
    'native-stages.cu',
    'certify-normed.cu',
  ])
    expect(sources, kernelFolder).toContain(source);
  for (const type of ['f16', 'bf16'])
    for (const layout of ['in', 'out']) expect(covered).toContain(`native_tiles_${type}_${layout}_64x64`);
  // None is chosen for nothing, and what is chosen does launch what it is chosen for.
  expect(chosen.length).toBeLessThanOrEqual(covered.size);
  const { one, number, kernels } = chosen.find(({ native }) => !native)!;
  const bench = new Workbench(openNull({ activeRows: () => [] }), new CaseRandom(1, number));
  expect(planLaunches(placed(one.build(bench)), nativeFacts).map(({ kernel }) => kernel)).toEqual(kernels);
}, 300_000);
