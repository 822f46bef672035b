import { randomBytes } from 'node:crypto';
import { link, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { storageError, systemCode } from '../base/atomic-file.js';
import { InterruptedError } from '../base/errors.js';
import {
  isAlive,
  isTagAlive,
  type ProcessIdentity,
  processTag,
  thisProcess,
} from '../base/process-identity.js';

/** How often a waiting process looks again; preparing takes seconds to minutes. */
const pollMs = 100;

const holderSchema = z.object({
  host: z.string(),
  pid: z.int(),
  started: z.string().nullable(),
  token: z.string(),
});
type Holder = z.infer<typeof holderSchema>;

export interface LockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once when another process holds the lock, before waiting for it. */
  readonly onWait?: ((holder: ProcessIdentity, lockPath: string) => void) | undefined;
}

/**
 * Runs `work` while holding `<directory>.lock`, so that two processes do not prepare the same checkpoint twice. The lock
 * names its holder by host, pid and start time; a lock whose holder has ended is taken over. It saves work and is not
 * what keeps the directory whole: that is the rename at the end, so that even a lock lost to a broken file system
 * costs a second preparation and nothing else.
 */
export async function withPrepareLock<T>(
  directory: string,
  options: LockOptions,
  work: () => Promise<T>,
): Promise<T> {
  const path = `${directory}.lock`;
  const own: Holder = { ...thisProcess(), token: randomBytes(8).toString('hex') };
  await acquire(directory, path, own, options);
  try {
    return await work();
  } finally {
    const holder = await readHolder(path);
    if (holder?.token === own.token) await rm(path, { force: true });
  }
}

async function acquire(
  directory: string,
  path: string,
  own: Holder,
  { signal, onWait }: LockOptions,
): Promise<void> {
  let told = false;
  while (!(await tryCreate(directory, path, own))) {
    const holder = await readHolder(path);
    if (holder !== null && !isAlive(holder)) {
      await removeStale(directory, path, holder);
      continue;
    }
    if (holder !== null && !told) {
      told = true;
      onWait?.({ host: holder.host, pid: holder.pid, started: holder.started }, path);
    }
    try {
      await sleep(pollMs, undefined, signal === undefined ? {} : { signal });
    } catch (cause) {
      throw new InterruptedError('interrupted', `Cannot wait for "${path}": cancelled`, { path }, { cause });
    }
  }
}

/** Written under another name and linked, so that a lock is never seen empty. */
async function tryCreate(directory: string, path: string, own: Holder): Promise<boolean> {
  const draft = temporarySibling(directory);
  const text = JSON.stringify(own);
  try {
    await writeFile(draft, text);
    await linkOrCreate(draft, path, text);
    return true;
  } catch (error) {
    const code = systemCode(error);
    if (code === 'EEXIST') return false;
    throw storageError(error, 'lock', path, text.length);
  } finally {
    await rm(draft, { force: true });
  }
}

/** File systems without hard links (exFAT, some network ones) get a lock that is empty for a moment. */
async function linkOrCreate(draft: string, path: string, text: string): Promise<void> {
  try {
    await link(draft, path);
  } catch (error) {
    const unsupported = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'].includes(systemCode(error) ?? '');
    if (!unsupported) throw error;
    await writeFile(path, text, { flag: 'wx' });
  }
}

/** Null where the lock is gone. A lock that nobody can read (a disk that lost it) is held by nobody. */
async function readHolder(path: string): Promise<Holder | null> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return null;
    throw error;
  }
  try {
    return holderSchema.parse(JSON.parse(text));
  } catch {
    return { host: thisProcess().host, pid: 0x7fffffff, started: null, token: text };
  }
}

/** Moves the lock aside before deleting it, and puts it back if it was no longer the stale one. */
async function removeStale(directory: string, path: string, stale: Holder): Promise<void> {
  const aside = temporarySibling(directory);
  try {
    await rename(path, aside);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return;
    throw error;
  }
  const moved = await readHolder(aside);
  if (moved !== null && moved.token !== stale.token) {
    await link(aside, path).catch((error: unknown) => {
      if (systemCode(error) !== 'EEXIST') throw error;
    });
  }
  await rm(aside, { force: true });
}

/**
 * Temporary sibling of `directory` (the directory being built, or a draft of the lock) that names its process, so that
 * the next run can tell whether it is still in use.
 */
export function temporarySibling(directory: string): string {
  const name = `.${basename(directory)}.${processTag(thisProcess())}.${randomBytes(4).toString('hex')}.partial`;
  return join(dirname(directory), name);
}

/** Renames an outdated directory to a name that the next run would clear away; null where there is none. */
export async function moveAside(directory: string): Promise<string | null> {
  const aside = temporarySibling(directory);
  try {
    await rename(directory, aside);
    return aside;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return null;
    throw storageError(error, 'replace', directory, 0);
  }
}

/** Removes what killed processes left beside `directory`: half-built directories and drafts of locks. */
export async function removeLeftovers(directory: string): Promise<void> {
  const parent = dirname(directory);
  const prefix = `.${basename(directory)}.`;
  for (const name of await readdir(parent)) {
    if (!name.startsWith(prefix) || !name.endsWith('.partial')) continue;
    const tag = name.slice(prefix.length).split('.')[0]!;
    if (!isTagAlive(tag)) await rm(join(parent, name), { recursive: true, force: true });
  }
}
