import type { TrialRecord } from './record-format.js';

/** One episode: prompts as token ids, run one after another. */
export interface Episode {
  readonly prompts: readonly (readonly number[])[];
  readonly newTokens: number;
  /** Gives the logits rows, too. */
  readonly keepLogits: boolean;
}

/** Times of one request, ns; null where the arm does not measure them. */
export interface RequestTimes {
  readonly prefillNs: bigint | null;
  readonly decodeNs: bigint | null;
  readonly totalNs: bigint | null;
  readonly timeToFirstTokenNs: bigint | null;
  readonly decodeStepNs: readonly bigint[];
}

/** Hears an episode as it goes, so that a run can stop at the first token that differs, and keeps what there was. */
export interface EpisodeListener {
  begin(): void;
  /**
   * A new token; `logitsDigest` is null where the arm gives none, and `logits` is the row (base64 of little-endian binary32) where
   * it was asked for. Throws where it differs from what is expected.
   */
  token(request: number, tokenId: number, logitsDigest: string | null, logits: string | null): void;
  requestEnd(request: number, finishReason: string, times: RequestTimes): void;
  end(): void;
}

/** What an episode moved and held; null where the arm does not measure it. */
export interface EpisodeUsage {
  readonly moved: Record<string, string> | null;
  readonly movedRows: Record<string, string> | null;
  readonly deviceRead: string | null;
  readonly peaks: TrialRecord['peaks'];
}

/** An arm that is set up. */
export interface ArmDriver {
  readonly setupNs: bigint;
  readonly setupMoved: Record<string, string> | null;
  readonly facts: TrialRecord['arm'];
  /** Of the process that does the work, where it is another than this one. */
  readonly processId: number | null;
  /** Of the process that does the work. */
  residentSetBytes(): bigint | null;
  heldBytes(): bigint | null;
  /** Charges the recorder's room to whoever counts the arm's bytes, and gives it back; only where it is in the same process. */
  holdRecording?(byteLength: number): void;
  releaseRecording?(byteLength: number): void;
  runEpisode(episode: Episode, listener: EpisodeListener, signal: AbortSignal): Promise<EpisodeUsage>;
  /** Gives everything back; tells the bytes that are still held and the processes that are still there. */
  close(): Promise<{ readonly heldBytes: bigint; readonly children: number }>;
}

export const unknownArm: TrialRecord['arm'] = {
  backend: null,
  kernels: null,
  kernelDigest: null,
  numerics: null,
  threads: null,
  policy: null,
  regime: null,
  budgetBytes: null,
  planDigest: null,
  plannedBytes: null,
};

/** Counts as decimal strings. */
export function decimals(counts: Readonly<Record<string, number>>): Record<string, string> {
  return Object.fromEntries(Object.entries(counts).map(([cause, count]) => [cause, String(count)]));
}
