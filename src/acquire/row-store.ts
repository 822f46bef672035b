/**
 * Rows of one matrix that lie in the arena from before. A row is entered only when it has landed, so that a failed read
 * leaves nothing wrong behind.
 */
export interface RowStore {
  /** Rows held now. */
  readonly count: number;
  /** Arena row of a held neuron, or -1. Says that it is in use: it stays until the next `begin`. */
  slotOf(neuron: number): number;
  /** Begins an active set; all its held rows are asked for before the first place is offered. */
  begin(): void;
  /** Arena row for the `newcomer`-th missing neuron of the set, asked for in order, or -1 for none. */
  offer(newcomer: number): number;
  /** Enters neurons in the order in which places were offered. */
  enter(neurons: readonly number[]): void;
  /** Takes back places that were offered and not entered. */
  reset(): void;
}
