import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { storageError, systemCode } from '../base/atomic-file.js';
import { SetupError } from '../base/errors.js';
import { isAlive, type ProcessIdentity, thisProcess } from '../base/process-identity.js';

/**
 * One run per processor or device at a time: a lock file for each resource, so that runs on overlapping sets of
 * processors exclude each other. A lock whose process has ended is taken over.
 */
export interface Lease {
  readonly resources: readonly string[];
  /** Gives the locks back; tells how many could not be removed. Idempotent. */
  release(): Promise<number>;
}

const holderSchema = z.object({
  host: z.string(),
  pid: z.int(),
  started: z.string().nullable(),
  token: z.string(),
});

/** Where the locks of this machine lie. */
export function defaultLeaseFolder(): string {
  return join(tmpdir(), 'waybill-leases');
}

/** Processors that this process may use (`Cpus_allowed_list`, proc(5)), as resources; all where nobody says. */
export function processorResources(): string[] {
  let list = `0-${Math.max(0, cpus().length - 1)}`;
  try {
    list = /^Cpus_allowed_list:\s+(\S+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? list;
  } catch {
    // not Linux
  }
  return list.split(',').flatMap((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => `cpu-${first + index}`);
  });
}

/** The GPU that a session opens: the first that CUDA_VISIBLE_DEVICES names, by UUID or index. */
export function gpuResource(): string {
  const first = (process.env.CUDA_VISIBLE_DEVICES ?? '').split(',')[0]!.trim();
  return `gpu-${/^[\w.-]+$/.test(first) ? first : '0'}`;
}

/**
 * Takes all resources or none.
 * @throws SetupError `lease-held` naming resource and holder
 */
export async function takeLease(resources: readonly string[], folder: string): Promise<Lease> {
  const own = { ...thisProcess(), token: randomBytes(8).toString('hex') };
  try {
    // Other users' runs must see these locks, too
    await mkdir(folder, { recursive: true, mode: 0o777 });
  } catch (error) {
    throw storageError(error, 'lock', folder, 200 * resources.length);
  }
  const taken: string[] = [];
  const release = async (): Promise<number> => {
    let left = 0;
    for (const path of taken.splice(0)) {
      if ((await readHolder(path))?.token !== own.token) continue;
      await rm(path, { force: true }).catch(() => left++);
    }
    return left;
  };
  try {
    for (const resource of [...resources].sort()) {
      const path = join(folder, `${resource}.lock`);
      await takeOne(path, resource, own);
      taken.push(path);
    }
  } catch (error) {
    await release();
    throw error;
  }
  return { resources: [...resources].sort(), release };
}

async function takeOne(
  path: string,
  resource: string,
  own: ProcessIdentity & { token: string },
): Promise<void> {
  // Each failed try saw another holder; a stale one is removed once, so a few rounds are enough
  for (let round = 0; round < 10; round++) {
    if (await create(path, own)) return;
    const holder = await readHolder(path);
    if (holder === null) continue;
    if (isAlive(holder)) {
      throw new SetupError(
        'lease-held',
        `Cannot take "${resource}" for this run: process ${holder.pid} on "${holder.host}" holds it, want one run at a time`,
        { resource, pid: holder.pid, host: holder.host, path },
      );
    }
    await removeStale(path, holder.token);
  }
  throw new SetupError('lease-held', `Cannot take "${resource}" for this run: others keep taking "${path}"`, {
    resource,
    path,
  });
}

/** Written under another name and linked, so that a lock is never seen empty. */
async function create(path: string, own: object & { token: string }): Promise<boolean> {
  const draft = `${path}.${own.token}.tmp`;
  try {
    await writeFile(draft, JSON.stringify(own));
    await link(draft, path);
    return true;
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return false;
    throw storageError(error, 'lock', path, 200);
  } finally {
    await rm(draft, { force: true });
  }
}

/** Null where the lock is gone. One that cannot be read is held by nobody. */
async function readHolder(path: string): Promise<(ProcessIdentity & { token: string }) | null> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return null;
    throw storageError(error, 'lock', path, 200);
  }
  try {
    return holderSchema.parse(JSON.parse(text));
  } catch {
    return { host: thisProcess().host, pid: 0x7fffffff, started: null, token: text };
  }
}

/** Moves the lock aside first, and puts it back where it was no longer the stale one. */
async function removeStale(path: string, token: string): Promise<void> {
  const aside = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    await rename(path, aside);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return;
    throw storageError(error, 'lock', path, 200);
  }
  const moved = await readHolder(aside);
  if (moved !== null && moved.token !== token) {
    await link(aside, path).catch((error: unknown) => {
      if (systemCode(error) !== 'EEXIST') throw error;
    });
  }
  await rm(aside, { force: true });
}
