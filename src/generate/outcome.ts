import type { LedgerTotals } from '../memory/ledger.js';

/** One new token, as it comes. */
export interface TokenEvent {
  /** Index of the request in its batch. */
  readonly request: number;
  /** Index among the new tokens of the request. */
  readonly index: number;
  readonly tokenId: number;
  /** Text that this token lets be shown; may be empty while part of a character or of a stop string is held back. */
  readonly text: string;
  /**
   * SHA-256 of the logits row that chose it (docs/numerics.md). Computed beside the next pass, or when it is read before
   * that: who can wait for the outcome saves the time.
   */
  readonly logitsDigest: string;
  readonly elapsedNs: bigint; // since the generation began
}

/** Why a request ended: an end-of-sequence id or stop string, the token limit or context, or an abort. */
export type FinishReason = 'stop' | 'length' | 'interrupted';

/** One request, finished. */
export interface RequestOutcome {
  readonly promptTokenIds: readonly number[];
  readonly tokenIds: readonly number[];
  readonly text: string;
  readonly finishReason: FinishReason;
  readonly logitsDigests: readonly string[];
}

/** Wall times of a generation, ns. */
export interface GenerationTimes {
  /** 1 in the session's first call, which pays for what is done once; scores count, too. */
  readonly episode: number;
  readonly prefillNs: bigint;
  readonly decodeNs: bigint;
  readonly totalNs: bigint;
  readonly timeToFirstTokenNs: bigint | null;
  /** Passes of one token a request, each. */
  readonly decodeStepNs: readonly bigint[];
}

/** A whole generation: results, times, and the bytes that it moved (held figures are those at its end). */
export interface GenerationOutcome {
  readonly status: 'completed' | 'interrupted' | 'failed';
  readonly requests: readonly RequestOutcome[];
  readonly times: GenerationTimes;
  readonly bytes: LedgerTotals;
  readonly prefillPasses: number;
  readonly decodePasses: number;
  /** Bytes that the block device delivered during the generation, or null where the system does not count them. */
  readonly deviceReadBytes: number | null;
}
