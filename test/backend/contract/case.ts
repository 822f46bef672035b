import type { Op, PlacedOp } from '../../../src/backend/ops.js';
import type { Workbench } from './workbench.js';

/** One run of ops over random operands. `build` draws from `bench.random` alone, so each backend gets the same case. */
export interface ContractCase {
  readonly name: string;
  build(bench: Workbench): Op[];
}

/** Cases that make up one test. */
export interface CaseGroup {
  readonly name: string;
  readonly cases: readonly ContractCase[];
}

export function placed(ops: readonly Op[]): PlacedOp[] {
  return ops.map((op, index) => ({ op, label: `case.${index}.${op.kind}` }));
}

/** Sizes around every width that a kernel may treat apart: vectors, tiles, blocks of 128. */
export const oddSizes = [
  1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 64, 65, 100, 127, 128, 129, 191, 255, 256, 257, 300,
];
export const rowCounts = [1, 2, 3, 4, 5, 8, 13, 33, 130];
export const storedTypes = ['f32', 'f16', 'bf16'] as const;
export const layouts = ['input-major', 'output-major'] as const;
