import { UsageError } from '../base/errors.js';

/**
 * Cuts a text into windows of at most `capacity` fed tokens and one more that is only predicted, each after the prefix id.
 * They do not overlap. Throws `UsageError` `text-too-short` where nothing is left to predict.
 */
export function cutWindows(
  tokenIds: readonly number[],
  capacity: number,
  prefixId: number | null,
): number[][] {
  const prefix = prefixId === null ? [] : [prefixId];
  const step = capacity + 1 - prefix.length;
  const windows: number[][] = [];
  for (let begin = 0; begin < tokenIds.length; begin += step) {
    windows.push([...prefix, ...tokenIds.slice(begin, begin + step)]);
  }
  const usable = windows.filter((window) => window.length > 1);
  if (usable.length > 0) return usable;
  throw new UsageError('text-too-short', `Cannot run a text of ${tokenIds.length} tokens: want at least 2`);
}
