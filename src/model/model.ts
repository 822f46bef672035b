import type { WeightSource } from '../acquire/weight-source.js';
import type { Backend } from '../backend/backend.js';
import type { Pass } from '../backend/pass.js';
import type { ModelConfig } from '../checkpoint/model-config.js';
import type { ModelDescription } from '../checkpoint/model-description.js';
import type { Span } from '../memory/buffers.js';
import type { KvCache } from '../memory/kv-cache.js';
import type { BatchLimits, ForwardBatch } from './batch.js';
import type { Workspace } from './workspace.js';

/** A model that is ready to compute: weights behind a source, a workspace, a KV cache. */
export interface Model {
  readonly description: ModelDescription;
  readonly limits: BatchLimits;
  /** SHA-256 of the rotary table, for receipts; null where the model has none. */
  readonly ropeTableDigest: string | null;
  /** U32 [logits rows]: where a pass leaves its greedy tokens, on backends that bring logits to the host later; see `GreedyOp`. */
  readonly chosen: Span;
  /**
   * Emits one pass, from token ids to logits, that writes its keys and values to the cache. The caller has begun the
   * pass at the weight source, and ends it there before it reads the logits or starts another: the workspace is
   * shared. After a failure the keys and values of the batch's positions are undefined, all others are untouched.
   *
   * @returns F32 `[logitsRows.length, vocabSize]` in the workspace, valid until the next forward.
   * @throws UsageError, DefectError as `checkBatch`; whatever the weight source throws.
   */
  forward(pass: Pass, batch: ForwardBatch): Promise<Span>;
  /**
   * Writes ids and positions of a batch, which is all that tells a pass from another one of the same shape: for passes
   * whose ops are repeated instead of emitted. Throws as `forward`.
   */
  place(batch: ForwardBatch): void;
}

/** What a model is put together from. */
export interface ModelParts<Config extends ModelConfig = ModelConfig> {
  readonly config: Config;
  readonly description: ModelDescription;
  readonly source: WeightSource;
  readonly workspace: Workspace;
  readonly cache: KvCache;
  readonly backend: Backend;
}
