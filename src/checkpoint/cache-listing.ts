import { lstat, readdir, readFile, realpath, rename, rm } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { storageError, systemCode } from '../base/atomic-file.js';
import { SetupError, UsageError } from '../base/errors.js';
import { isCommit } from './hub-id.js';
import { hubCacheDirectory } from './hub-settings.js';
import { temporarySibling } from './prepare-lock.js';
import { waybillHome } from './prepared-location.js';

export interface CacheEntry {
  /** `hub`: everything that is cached of one hub model; `prepared`: one prepared model. */
  readonly kind: 'hub' | 'prepared';
  /** What `removeFromCache` takes: `org/name`, or the digest that names a prepared model. */
  readonly name: string;
  readonly path: string;
  /** Bytes of all files, each counted once however many snapshots link to it. */
  readonly byteLength: number;
  /** Of the file that changed last. */
  readonly modified: Date;
  /** Of a hub model: its snapshots by commit, with the branches and tags that name them. */
  readonly revisions: readonly { readonly commit: string; readonly refs: readonly string[] }[];
}

export interface CacheListing {
  readonly entries: readonly CacheEntry[];
  readonly byteLength: number;
}

/** A digest, as `defaultPreparedDirectory` names folders. */
const preparedName = /^[0-9a-f]{64}$/;

/**
 * What `HF_HOME` holds that Waybill can run: models in the hub cache, and prepared models under `$HF_HOME/waybill`.
 * Datasets are not listed; what an interrupted download left is, since removing it frees the disk. Entries are sorted by kind and name.
 */
export async function listCache(environment: NodeJS.ProcessEnv = process.env): Promise<CacheListing> {
  const entries = [
    ...(await hubEntries(hubCacheDirectory(environment))),
    ...(await preparedEntries(waybillHome(environment))),
  ];
  return { entries, byteLength: entries.reduce((total, entry) => total + entry.byteLength, 0) };
}

/**
 * Removes one entry by its name (a prepared model also by the first digits of its digest, eight at least). Only
 * folders that lie in the cache are removed, and links are removed without what they point to. Throws `UsageError`
 * `cache-entry-unknown` or `cache-entry-ambiguous`, `SetupError` `cache-entry-outside` where the entry itself is a
 * link, `not-writable`. Returns what was removed.
 */
export async function removeFromCache(
  name: string,
  environment: NodeJS.ProcessEnv = process.env,
): Promise<CacheEntry> {
  const { entries } = await listCache(environment);
  const isPrefix = /^[0-9a-f]{8,64}$/.test(name);
  const exact = entries.filter((entry) => entry.name === name);
  const found =
    exact.length > 0
      ? exact
      : entries.filter((entry) => isPrefix && entry.kind === 'prepared' && entry.name.startsWith(name));
  const [entry] = found;
  if (entry === undefined) {
    throw new UsageError(
      'cache-entry-unknown',
      `Removing "${name}" from the cache failed: the cache holds no entry of that name, \`waybill cache ls\` lists them`,
      { name },
    );
  }
  if (found.length > 1) {
    throw new UsageError(
      'cache-entry-ambiguous',
      `Removing "${name}" from the cache failed: ${found.length} entries begin so, more digits are needed`,
      { name, entries: found.map((candidate) => candidate.name) },
    );
  }
  const root = entry.kind === 'hub' ? hubCacheDirectory(environment) : waybillHome(environment);
  await requireInside(entry, root);
  await removeDirectory(entry);
  return entry;
}

async function requireInside(entry: CacheEntry, root: string): Promise<void> {
  const isLink = (await kindOf(entry.path)) === 'link';
  const holdsEntry = dirname(entry.path) === root;
  if (!isLink && holdsEntry && (await realpath(entry.path)).startsWith((await realpath(root)) + sep)) return;
  throw new SetupError(
    'cache-entry-outside',
    `Removing "${entry.name}" from the cache failed: "${entry.path}" leads to a folder outside, wanted is a folder in "${root}"`,
    { name: entry.name, path: entry.path },
  );
}

/** Renamed first, so that a removal that is cut short leaves no entry that looks whole. */
async function removeDirectory(entry: CacheEntry): Promise<void> {
  const aside = temporarySibling(entry.path);
  try {
    await rename(entry.path, aside);
    await rm(aside, { recursive: true });
  } catch (error) {
    throw storageError(error, 'remove', entry.path, 0);
  }
}

/**
 * Read here and not by the hub library's `scanCacheDir`, which leaves out a model without `refs` (one fetched by its
 * commit), one whose first download was cut short and every ref with a slash, and fails on a dangling link.
 */
async function hubEntries(directory: string): Promise<CacheEntry[]> {
  const entries: CacheEntry[] = [];
  for (const folder of await namesIn(directory)) {
    const name = /^models--(.+)$/.exec(folder)?.[1]?.replaceAll('--', '/');
    const path = join(directory, folder);
    if (name === undefined || (await kindOf(path)) === 'file') continue;
    const refs = await readRefs(join(path, 'refs'), '');
    const commits = (await namesIn(join(path, 'snapshots'))).filter(isCommit).sort();
    const revisions = commits.map((commit) => ({
      commit,
      refs: refs.filter((ref) => ref.commit === commit).map((ref) => ref.name),
    }));
    entries.push({ kind: 'hub', name, path, ...(await measure(path)), revisions });
  }
  return entries.sort(byName);
}

async function readRefs(folder: string, prefix: string): Promise<{ name: string; commit: string }[]> {
  const refs: { name: string; commit: string }[] = [];
  for (const name of (await namesIn(folder)).sort()) {
    const path = join(folder, name);
    const kind = await kindOf(path);
    if (kind === 'folder') refs.push(...(await readRefs(path, `${prefix}${name}/`)));
    if (kind === 'file') refs.push({ name: prefix + name, commit: (await readFile(path, 'utf8')).trim() });
  }
  return refs;
}

async function preparedEntries(directory: string): Promise<CacheEntry[]> {
  const entries: CacheEntry[] = [];
  for (const name of await namesIn(directory)) {
    const path = join(directory, name);
    if (!preparedName.test(name) || (await kindOf(join(path, 'manifest.json'))) !== 'file') continue;
    entries.push({ kind: 'prepared', name, path, ...(await measure(path)), revisions: [] });
  }
  return entries.sort(byName);
}

/** Sums a folder without following links, a file with several names counted once. */
async function measure(directory: string): Promise<{ byteLength: number; modified: Date }> {
  const counted = new Set<string>();
  let byteLength = 0;
  let modifiedMs = (await lstat(directory)).mtimeMs;
  const visit = async (folder: string): Promise<void> => {
    for (const name of await namesIn(folder)) {
      const path = join(folder, name);
      const entry = await lstat(path).catch(() => null);
      if (entry === null) continue;
      if (entry.isDirectory()) await visit(path);
      const key = `${entry.dev}:${entry.ino}`;
      if (!entry.isFile() || counted.has(key)) continue;
      counted.add(key);
      byteLength += entry.size;
      modifiedMs = Math.max(modifiedMs, entry.mtimeMs);
    }
  };
  if (!(await lstat(directory)).isSymbolicLink()) await visit(directory);
  return { byteLength, modified: new Date(modifiedMs) };
}

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(systemCode(error) ?? '')) return [];
    throw error;
  }
}

async function kindOf(path: string): Promise<'file' | 'folder' | 'link' | null> {
  const entry = await lstat(path).catch(() => null);
  if (entry === null) return null;
  if (entry.isSymbolicLink()) return 'link';
  return entry.isDirectory() ? 'folder' : 'file';
}

function byName(a: CacheEntry, b: CacheEntry): number {
  return a.name < b.name ? -1 : 1;
}
