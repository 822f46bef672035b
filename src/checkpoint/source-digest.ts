import { createHash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { mkdir, open, readFile, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileAtomic } from '../base/atomic-file.js';
import { InputError, InterruptedError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';

/** A file of a checkpoint as receipts and manifests name it. */
export interface SourceFile {
  readonly name: string;
  readonly byteLength: number;
  readonly sha256: string;
}

export interface DigestOptions {
  /** Where digests are remembered between runs; null: nowhere. */
  readonly cacheDirectory: string | null;
  /** Hash every file again, whatever is remembered. */
  readonly verify?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Bytes hashed and to be hashed; not called for what is remembered. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/**
 * SHA-256 over the digests of a checkpoint's files, sorted by name, one line each as `sha256sum` prints it: two
 * spaces between digest and name, a newline at the end.
 */
export function sourceDigest(files: readonly Pick<SourceFile, 'name' | 'sha256'>[]): string {
  const lines = [...files]
    .sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
    .map(({ name, sha256 }) => `${sha256}  ${name}\n`);
  return createHash('sha256').update(lines.join('')).digest('hex');
}

/**
 * A file changed this shortly before it was hashed may change again within the resolution of its time stamps (2 s on
 * FAT, 1 s on some network file systems) and is not remembered.
 */
const settledNs = 2_000_000_000n;

const chunkBytes = 4 * 1024 * 1024;

const cacheSchema = z.record(
  z.string(),
  z.strictObject({ stamp: z.string(), sha256: z.string().regex(/^[0-9a-f]{64}$/) }),
);
type Cache = z.infer<typeof cacheSchema>;

/**
 * SHA-256 of the named files of a folder. A file whose device, inode, size, modification and change time are those of
 * an earlier hashing is not read again: this trusts the system's time stamps, which whoever may write the file's
 * disk behind the file system's back, or set the clock back, can forge. `verify` trusts nothing.
 * Throws `InputError` `source-changing` where a file is written to while it is hashed, `file-missing`.
 */
export async function digestSourceFiles(
  folder: string,
  names: readonly string[],
  options: DigestOptions,
): Promise<SourceFile[]> {
  const cachePath = await cacheFile(folder, options.cacheDirectory);
  const remembered = cachePath === null ? {} : await readCache(cachePath);
  const stats = await Promise.all(names.map((name) => statFile(folder, name)));
  const isKnown = (position: number) => {
    const known = remembered[names[position]!];
    return options.verify !== true && known !== undefined && known.stamp === stamp(stats[position]!);
  };
  const totalBytes = stats.reduce(
    (sum, { size }, position) => sum + (isKnown(position) ? 0 : Number(size)),
    0,
  );
  let doneBytes = 0;
  const advance = (byteLength: number) => {
    doneBytes += byteLength;
    options.onProgress?.(doneBytes, totalBytes);
  };
  const files: SourceFile[] = [];
  const next: Cache = {};
  let learned = false;
  for (const [position, name] of names.entries()) {
    if (isKnown(position)) {
      const known = remembered[name]!;
      next[name] = known;
      files.push({ name, byteLength: Number(stats[position]!.size), sha256: known.sha256 });
      continue;
    }
    const hashed = await hashFile(folder, name, advance, options.signal);
    files.push({ name, byteLength: Number(hashed.stat.size), sha256: hashed.sha256 });
    if (!hashed.settled) continue;
    next[name] = { stamp: stamp(hashed.stat), sha256: hashed.sha256 };
    learned = true;
  }
  if (cachePath !== null && learned) await writeCache(cachePath, next);
  return files;
}

/** What must be unchanged for a remembered digest to count. */
function stamp(stat: BigIntStats): string {
  return [stat.dev, stat.ino, stat.size, stat.mtimeNs, stat.ctimeNs].join(':');
}

/** Stamps of a checkpoint's files, to be compared before and after a long read of them. */
export async function sourceStamps(folder: string, names: readonly string[]): Promise<Map<string, string>> {
  const stamps = new Map<string, string>();
  for (const name of names) stamps.set(name, stamp(await statFile(folder, name)));
  return stamps;
}

async function statFile(folder: string, name: string): Promise<BigIntStats> {
  const file = await openSource(folder, name);
  try {
    return await file.stat({ bigint: true });
  } finally {
    await file.close();
  }
}

async function openSource(folder: string, name: string) {
  try {
    return await open(join(folder, name), 'r');
  } catch (cause) {
    throw new InputError(
      'file-missing',
      `Cannot hash "${name}" of "${folder}": ${failureReason(cause)}`,
      { file: name, folder },
      { cause },
    );
  }
}

async function hashFile(
  folder: string,
  name: string,
  advance: (byteLength: number) => void,
  signal: AbortSignal | undefined,
): Promise<{ stat: BigIntStats; sha256: string; settled: boolean }> {
  const file = await openSource(folder, name);
  try {
    const before = await file.stat({ bigint: true });
    const startedNs = BigInt(Date.now()) * 1_000_000n;
    const hash = createHash('sha256');
    const chunk = new Uint8Array(chunkBytes);
    for (;;) {
      if (signal?.aborted === true) {
        throw new InterruptedError('interrupted', `Cannot hash "${name}": cancelled`, { file: name });
      }
      const { bytesRead } = await file.read(chunk, 0, chunkBytes);
      if (bytesRead === 0) break;
      hash.update(chunk.subarray(0, bytesRead));
      advance(bytesRead);
    }
    const after = await file.stat({ bigint: true });
    if (stamp(after) !== stamp(before)) {
      throw new InputError(
        'source-changing',
        `Cannot hash "${name}" of "${folder}": it is being written to`,
        {
          file: name,
          folder,
        },
      );
    }
    const settled = [after.mtimeNs, after.ctimeNs].every((time) => time + settledNs < startedNs);
    return { stat: after, sha256: hash.digest('hex'), settled };
  } finally {
    await file.close();
  }
}

async function cacheFile(folder: string, directory: string | null): Promise<string | null> {
  if (directory === null) return null;
  const key = createHash('sha256')
    .update(await realpath(folder))
    .digest('hex');
  return join(directory, `${key}.json`);
}

/** A cache that cannot be read, for whatever reason, only costs hashing again. */
async function readCache(path: string): Promise<Cache> {
  try {
    return cacheSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return {};
  }
}

/** Where the cache cannot be written (a read-only home), the next run hashes again; that is no failure of this one. */
async function writeCache(path: string, cache: Cache): Promise<void> {
  try {
    await mkdir(join(path, '..'), { recursive: true });
    await writeFileAtomic(path, JSON.stringify(cache));
  } catch {}
}
