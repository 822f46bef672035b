import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { InterruptedError } from '../base/errors.js';
import type { Engine } from './engine.js';
import { forward } from './forward.js';
import type { ScoreOptions } from './score.js';
import { cutWindows } from './text-windows.js';

/**
 * Feeds the windows that `scoreTokens` feeds, for who watches the ops of the passes: without the head and what comes of
 * it, which can take longer than the layers.
 *
 * @throws UsageError `text-too-short`; InterruptedError `interrupted`
 */
export async function feedText(
  engine: Engine,
  tokenIds: readonly number[],
  { prefixId, signal, onProgress }: Omit<ScoreOptions, 'onRow'>,
): Promise<void> {
  const windows = cutWindows(tokenIds, engine.capacity, prefixId);
  const total = windows.reduce((sum, window) => sum + window.length - 1, 0);
  const endTurn = engine.turn.take('profile');
  let slot: number | undefined;
  let done = 0;
  try {
    [slot] = engine.kv.claim(1);
    for (const window of windows) {
      const fed = window.slice(0, -1); // the last token is only predicted
      for (let begin = 0; begin < fed.length; begin += engine.prefillChunk) {
        await eventLoopTurn(); // as in a generation
        if (signal?.aborted === true)
          throw new InterruptedError('interrupted', 'Stopped profiling: the run was aborted');
        const ids = fed.slice(begin, begin + engine.prefillChunk);
        const rows = ids.map((tokenId, offset) => ({ slot: slot!, position: begin + offset, tokenId }));
        done += ids.length;
        await forward(engine, { kind: 'prefill', rows, logitsRows: [] }, done === total ? null : 'prefill');
        onProgress?.(done, total);
      }
    }
  } finally {
    if (slot !== undefined) engine.kv.release(slot);
    endTurn();
  }
}
