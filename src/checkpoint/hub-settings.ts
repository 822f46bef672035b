import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { UsageError } from '../base/errors.js';

/** What the Hugging Face ecosystem's own environment variables say; nothing else is read from the environment. */
export interface HubSettings {
  /** `HF_ENDPOINT`, default https://huggingface.co; no slash at the end. */
  readonly endpoint: string;
  /** `HF_TOKEN`; sent to the endpoint alone, never to where it redirects. */
  readonly token: string | null;
  /** `HF_HUB_OFFLINE`. */
  readonly offline: boolean;
  /** `HF_HUB_CACHE`, else `$HF_HOME/hub`, else `~/.cache/huggingface/hub`. */
  readonly cacheDirectory: string;
}

/** Throws `UsageError` `hub-endpoint-invalid`. */
export function readHubSettings(environment: NodeJS.ProcessEnv = process.env): HubSettings {
  const token = environment.HF_TOKEN?.trim() ?? '';
  return {
    endpoint: checkedEndpoint(environment.HF_ENDPOINT),
    token: token === '' ? null : token,
    offline: ['1', 'true', 'yes', 'on'].includes((environment.HF_HUB_OFFLINE ?? '').trim().toLowerCase()),
    cacheDirectory: hubCacheDirectory(environment),
  };
}

/** Where hub snapshots are kept, shared with every other Hugging Face library. */
export function hubCacheDirectory(environment: NodeJS.ProcessEnv = process.env): string {
  const { HF_HUB_CACHE: cache, HF_HOME: home } = environment;
  if (cache !== undefined && cache !== '') return resolve(expandTilde(cache));
  const root = home === undefined || home === '' ? join(homedir(), '.cache', 'huggingface') : home;
  return resolve(expandTilde(root), 'hub');
}

function expandTilde(path: string): string {
  return path === '~' || path.startsWith('~/') ? join(homedir(), path.slice(1)) : path;
}

function checkedEndpoint(given: string | undefined): string {
  if (given === undefined || given.trim() === '') return 'https://huggingface.co';
  const url = URL.canParse(given.trim()) ? new URL(given.trim()) : null;
  if (url === null || !['http:', 'https:'].includes(url.protocol) || url.search !== '' || url.hash !== '') {
    throw new UsageError(
      'hub-endpoint-invalid',
      `Reading HF_ENDPOINT failed: "${given}" is no http or https address without query`,
      { endpoint: given },
    );
  }
  return url.href.replace(/\/+$/, '');
}
