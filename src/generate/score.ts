import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { exp64, log64 } from '../base/binary64.js';
import { InterruptedError } from '../base/errors.js';
import type { Engine } from './engine.js';
import { forward } from './forward.js';
import { cutWindows } from './text-windows.js';

/** Teacher-forced score of a text. */
export interface Score {
  /** Tokens that were predicted: all but the first of each window. */
  readonly scoredTokens: number;
  /** Natural logarithms, one a scored token. */
  readonly logProbabilities: readonly number[];
  readonly logitsDigests: readonly string[];
  readonly meanNegativeLogLikelihood: number; // nats a token
  readonly perplexity: number;
  readonly windows: number;
}

export interface ScoreOptions {
  /** Put before every window, usually the BOS id; null: windows begin with the text itself. */
  readonly prefixId: number | null;
  readonly signal?: AbortSignal;
  readonly onProgress?: (doneTokens: number, totalTokens: number) => void;
  /** Told each scored row in order; it is not kept. */
  readonly onRow?: (row: { readonly logits: Float32Array; readonly greedyId: number }) => void;
}

/**
 * Log-probabilities of a text under the model, in windows of the context that do not overlap, each after the prefix
 * id. A token's probability is exp(logit) / sum of exp over the vocabulary, summed in binary64 in id order after
 * subtracting the largest logit.
 *
 * @throws UsageError `text-too-short` for fewer than 2 tokens in all
 */
export async function scoreTokens(
  engine: Engine,
  tokenIds: readonly number[],
  options: ScoreOptions,
): Promise<Score> {
  const windows = cutWindows(tokenIds, engine.capacity, options.prefixId);
  const total = windows.reduce((sum, window) => sum + window.length - 1, 0);
  const logProbabilities: number[] = [];
  const logitsDigests: string[] = [];
  const endTurn = engine.turn.take('score');
  let slot: number | undefined;
  try {
    [slot] = engine.kv.claim(1);
    const chunk = Math.min(engine.prefillChunk, engine.maxLogitsRows);
    for (const [index, window] of windows.entries()) {
      // The last token is only predicted, never fed.
      for (let begin = 0; begin < window.length - 1; begin += chunk) {
        await eventLoopTurn(); // as in a generation
        if (options.signal?.aborted === true)
          throw new InterruptedError('interrupted', 'Stopped scoring: the run was aborted');
        const fed = window.slice(begin, Math.min(begin + chunk, window.length - 1));
        const last = index === windows.length - 1 && begin + chunk >= window.length - 1;
        const rows = await forward(
          engine,
          {
            kind: 'prefill',
            rows: fed.map((tokenId, offset) => ({ slot: slot!, position: begin + offset, tokenId })),
            logitsRows: fed.map((_, offset) => offset),
          },
          last ? null : 'prefill',
        );
        rows.forEach(({ logits, greedyId, digest: { hex } }, offset) => {
          options.onRow?.({ logits, greedyId });
          logProbabilities.push(logProbability(logits, window[begin + offset + 1]!));
          logitsDigests.push(hex);
        });
        options.onProgress?.(logProbabilities.length, total);
      }
    }
  } finally {
    if (slot !== undefined) engine.kv.release(slot);
    endTurn();
  }
  const mean = -logProbabilities.reduce((sum, value) => sum + value, 0) / total;
  return {
    scoredTokens: total,
    logProbabilities,
    logitsDigests,
    meanNegativeLogLikelihood: mean,
    perplexity: exp64(mean),
    windows: windows.length,
  };
}

function logProbability(logits: Float32Array, tokenId: number): number {
  let largest = logits[0]!;
  for (const logit of logits) if (logit > largest) largest = logit;
  let sum = 0;
  for (const logit of logits) sum += exp64(logit - largest);
  return logits[tokenId]! - largest - log64(sum);
}
