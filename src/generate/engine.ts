import type { OpenedWeightSource } from '../acquire/placed-source.js';
import type { Backend } from '../backend/backend.js';
import type { OpObserver } from '../backend/pass.js';
import type { Tokenizer } from '../checkpoint/tokenizer.js';
import type { KvCache } from '../memory/kv-cache.js';
import type { Ledger } from '../memory/ledger.js';
import type { Model } from '../model/model.js';
import type { RecordedPasses } from './recorded-passes.js';
import type { Turn } from './turn.js';

/** An opened model as generation uses it; `Session` is one. */
export interface Engine {
  readonly model: Model;
  readonly backend: Backend;
  readonly source: OpenedWeightSource;
  readonly kv: KvCache;
  readonly ledger: Ledger;
  readonly tokenizer: Tokenizer | null;
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
  /** Positions of a KV slot. */
  readonly capacity: number;
  /** Rows of a prefill pass (the prompt's chunk). */
  readonly prefillChunk: number;
  /** Logits rows that one pass can give. */
  readonly maxLogitsRows: number;
  readonly observer: OpObserver | null;
  readonly recorded: RecordedPasses;
  readonly turn: Turn;
}
