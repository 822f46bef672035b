import { rmSync } from 'node:fs';

const unfinished = new Set<string>();
let watched = false;

/**
 * Has a temporary file removed where the process ends by `process.exit` while it is being written, as a second SIGINT
 * makes it do, until `settled` is called. One that does not exist is no error.
 */
export function unfinishedFile(path: string): { settled(): void } {
  if (!watched) process.once('exit', removeUnfinished);
  watched = true;
  unfinished.add(path);
  return { settled: () => unfinished.delete(path) };
}

function removeUnfinished(): void {
  for (const path of unfinished) {
    try {
      rmSync(path, { force: true });
    } catch {
      // Nobody is left to be told
    }
  }
}
