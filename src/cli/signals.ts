import { exitCodes } from '../base/errors.js';

/**
 * Aborts on the first SIGINT or SIGTERM, and when standard output is lost; a second SIGINT ends the
 * process at once.
 */
export function interruption(): { signal: AbortSignal; dispose(): void } {
  const controller = new AbortController();
  const onSignal = (): void => {
    if (controller.signal.aborted) process.exit(exitCodes.interrupted);
    controller.abort();
  };
  // What else a lost output means is said in main.ts
  const onOutputError = (): void => controller.abort();
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  process.stdout.on('error', onOutputError);
  return {
    signal: controller.signal,
    dispose: () => {
      process.off('SIGINT', onSignal);
      process.off('SIGTERM', onSignal);
      process.stdout.off('error', onOutputError);
    },
  };
}
