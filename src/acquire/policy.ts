import type { QuantisedType } from '../base/quantised-type.js';
import type { PassKind } from './weight-source.js';

export const policyNames = [
  'resident',
  'resident-sparse',
  'stream',
  'extents',
  'packets',
  'packets-staged',
  'retention',
  'forecast',
  'phase',
  'certified',
  'resident-q8',
  'resident-q4',
] as const;
export type PolicyName = (typeof policyNames)[number];

/**
 * How rows of neurons come when they do not come whole: `packets` the active ones, straight to where they are used;
 * `extents` every block of 128 rows that holds an active one; `staged` the active ones with their indices into a packet,
 * then scattered; `retained` the active ones that are not held from before; `forecast` guessed ones early, the rest of
 * the active ones when they are known; `certified` as packets, and rows of first projections as far as a low-bit copy does
 * not prove their neurons inactive.
 */
export const rowPaths = ['packets', 'extents', 'staged', 'retained', 'forecast', 'certified'] as const;
export type RowPath = (typeof rowPaths)[number];

/**
 * An acquisition policy as data: what a kind of pass does with the rows of neurons (`second`, and `up` of gated FFNs).
 * All other matrices are dense in every policy, and so are neuron rows of a model or layer that packets cannot serve.
 */
export interface AcquisitionPolicy {
  readonly name: PolicyName;
  /** One line for `plan` and help. */
  readonly summary: string;
  /**
   * `whole-model`: everything is resident or the plan is refused. `if-all-fits`: neuron rows are loaded ahead only
   * when the whole model fits. `never`: neuron rows are not loaded ahead whole, whatever the budget.
   */
  readonly residence: 'whole-model' | 'if-all-fits' | 'never';
  /** How neuron rows that are not resident come; where both are row paths, they are one. */
  readonly rows: Readonly<Record<PassKind, 'streamed' | RowPath>>;
  /** Whether rows of zero activations are skipped where a matrix is resident. */
  readonly skipsZeros: Readonly<Record<PassKind, boolean>>;
  /** Set where other weights than the checkpoint's are computed with: such a policy is not exact. */
  readonly quantised?: QuantisedType;
}

/**
 * Paths whose rows ops of few tokens read from the host themselves, where there is a host tier; guessed ones where the host has
 * no part in the guess.
 */
export const directPaths: ReadonlySet<string> = new Set<RowPath>([
  'packets',
  'certified',
  'retained',
  'forecast',
]);

/** The row path of a policy, or null where neuron rows come whole in every pass. */
export function rowPathOf({ rows }: AcquisitionPolicy): RowPath | null {
  if (rows.decode !== 'streamed') return rows.decode;
  return rows.prefill === 'streamed' ? null : rows.prefill;
}

/** True where a path of a matrix moves rows alone. */
export function isRowPath(path: string): path is RowPath {
  return rowPaths.some((known) => known === path);
}
