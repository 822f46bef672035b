import type { Pass } from '../backend/pass.js';
import type { Span } from '../memory/buffers.js';
import type { Round, RoundPlan } from './rounds.js';
import type { PassKind } from './weight-source.js';

/** What the first products of a layer read: F32 `[rows, width]`. */
export interface LayerInput {
  readonly rows: readonly Float32Array[];
}

/** How the rows of one matrix come: what a feed asks of a row path. */
export interface RowWay {
  /** Rows held from one pass to the next. */
  readonly heldRows: number;
  /** Called when a pass comes to the layer of the matrix, before its attention. */
  enterLayer(kind: PassKind, input: LayerInput | null): void;
  /** Whether it has a use for the layer's input in a pass of this kind: the feed then reads it back. */
  readsInput?(kind: PassKind): boolean;
  /** Emits what is to run behind the compaction of an active set, before the set comes to the host. */
  lookUp?(pass: Pass, active: Span): void;
  /** Divides the ascending active set of a pass. What it finds in the arena has landed when this resolves. */
  plan(active: Uint32Array, kind: PassKind): Promise<RoundPlan>;
  /** Moves the rows of a round; ops that read the same half of the packet rows have ended. */
  move(round: Round): Promise<void>;
  /** After a failed pass, once no op runs: ends reads and forgets what has not landed. */
  reset(): Promise<void>;
}
