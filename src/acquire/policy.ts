import type { PassKind } from './weight-source.js';

export const policyNames = ['resident', 'resident-sparse', 'stream', 'packets', 'phase'] as const;
export type PolicyName = (typeof policyNames)[number];

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
   * when the whole model fits. `never`: neuron rows move in every pass, whatever the budget.
   */
  readonly residence: 'whole-model' | 'if-all-fits' | 'never';
  /** How neuron rows that are not resident come. */
  readonly rows: Readonly<Record<PassKind, 'streamed' | 'packets'>>;
  /** Whether rows of zero activations are skipped where a matrix is resident. */
  readonly skipsZeros: Readonly<Record<PassKind, boolean>>;
}
