import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

/** `$HF_HOME/waybill`; HF_HOME defaults to `~/.cache/huggingface`, as for every Hugging Face library. */
export function waybillHome(environment: NodeJS.ProcessEnv = process.env): string {
  const home = environment.HF_HOME;
  const root = home === undefined || home === '' ? join(homedir(), '.cache', 'huggingface') : home;
  return resolve(expandTilde(root), 'waybill');
}

/** Where a checkpoint is prepared when nobody says otherwise. */
export function defaultPreparedDirectory(sourceDigest: string, environment?: NodeJS.ProcessEnv): string {
  return join(waybillHome(environment), sourceDigest);
}

/** Where the digests of checkpoint files are remembered (`SourceDigests`). */
export function digestCacheDirectory(environment?: NodeJS.ProcessEnv): string {
  return join(waybillHome(environment), 'digests');
}

/** The Python library expands `~`, and a value set in a file has seen no shell. */
function expandTilde(path: string): string {
  return path === '~' || path.startsWith('~/') ? join(homedir(), path.slice(1)) : path;
}
