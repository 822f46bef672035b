import type { PlacedOp } from '../ops.js';
import type { LaunchFacts } from './launch.js';
import { planLaunches } from './plan-launches.js';

/** What was on the GPU when it failed. A GPU reports a failure behind the fact, so of several kernels one is meant. */
export interface Suspects {
  /** In order, each name once. */
  readonly kernels: readonly string[];
  readonly firstLabel: string;
  readonly lastLabel: string;
  readonly launches: number;
}

/** Kernels of the oldest submission that has not ended. Planned again: planning is pure, and this happens once. */
export function suspectsOf(ops: readonly PlacedOp[], facts: LaunchFacts): Suspects {
  const launches = planLaunches(ops, facts);
  return {
    kernels: [...new Set(launches.map(({ kernel }) => kernel))],
    firstLabel: ops[0]!.label,
    lastLabel: ops.at(-1)!.label,
    launches: launches.length,
  };
}

/** ` while it ran "linear_rows_f16_r1_32x1" for "layers.0.query"`, or the range where there are several. */
export function suspectsText({ kernels, firstLabel, lastLabel, launches }: Suspects): string {
  if (launches === 1) return ` while it ran "${kernels[0]}" for "${firstLabel}"`;
  return ` while it ran ${launches} kernels from "${firstLabel}" to "${lastLabel}", among them ${kernels.map((name) => `"${name}"`).join(', ')}`;
}

/** With the kernel that brings weights beside submissions; `label`: of the buffer that they go to, null where none runs. */
export function withMoves(suspects: Suspects | null, label: string | null): Suspects | null {
  if (label === null) return suspects;
  const moves = { kernels: ['move_runs'], firstLabel: label, lastLabel: label, launches: 1 };
  if (suspects === null) return moves;
  const { kernels, firstLabel, launches } = suspects;
  return { kernels: [...kernels, 'move_runs'], firstLabel, lastLabel: label, launches: launches + 1 };
}
