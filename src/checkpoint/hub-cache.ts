import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, readFile, rename, rm, stat, statfs, symlink } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { storageError, systemCode, writeFileAtomic } from '../base/atomic-file.js';
import { formatByteSize } from '../base/byte-size.js';
import { InputError, SetupError } from '../base/errors.js';
import { findWeights } from './checkpoint-files.js';
import { type HubId, isCommit } from './hub-id.js';

/** How much of a model a snapshot holds. */
export type Completeness = 'nothing' | 'weights' | 'weights-and-tokenizer';

export interface CachedSnapshot {
  readonly directory: string;
  readonly commit: string;
  readonly holds: Completeness;
}

/**
 * One repository in the hub cache, in the layout that all Hugging Face libraries share
 * (https://huggingface.co/docs/huggingface_hub/guides/manage-cache): `blobs/<digest>` holds bytes,
 * `snapshots/<commit>/<path>` links to them, `refs/<revision>` names a commit.
 */
export class HubCacheRepository {
  readonly directory: string;

  constructor(cacheDirectory: string, name: string) {
    this.directory = join(cacheDirectory, ['models', ...name.split('/')].join('--'));
  }

  blobPath(digest: string): string {
    return join(this.directory, 'blobs', digest);
  }

  snapshotDirectory(commit: string): string {
    return join(this.directory, 'snapshots', commit);
  }

  /** The snapshot of a revision as far as the cache knows it, null where it knows none. */
  async find({ revision }: HubId): Promise<CachedSnapshot | null> {
    const commit = isCommit(revision) ? revision : await this.#readRef(revision);
    if (commit === null) return null;
    const directory = this.snapshotDirectory(commit);
    return { directory, commit, holds: await completeness(directory) };
  }

  /** Makes the folders. Throws `SetupError` `not-writable` and its like. */
  async create(): Promise<void> {
    const path = join(this.directory, 'blobs');
    await mkdir(path, { recursive: true }).catch((error: unknown) => {
      throw storageError(error, 'write', path, 0);
    });
  }

  /** Throws `SetupError` `disk-full` where the disk has less than `neededBytes` to spare. */
  async requireSpace(neededBytes: number): Promise<void> {
    const { bavail, bsize } = await statfs(this.directory);
    const freeBytes = bavail * bsize;
    if (neededBytes <= freeBytes) return;
    throw new SetupError(
      'disk-full',
      `Fetching into "${this.directory}" failed: ${neededBytes} bytes (${formatByteSize(neededBytes)}) are needed, ${freeBytes} bytes (${formatByteSize(freeBytes)}) are free`,
      { path: this.directory, neededBytes: String(neededBytes), freeBytes: String(freeBytes) },
    );
  }

  /** Puts a blob into a snapshot under its path; by a copy where the system allows no symbolic links. */
  async link(commit: string, path: string, digest: string): Promise<void> {
    const target = join(this.snapshotDirectory(commit), path);
    const blob = this.blobPath(digest);
    const draft = join(dirname(target), `.${randomBytes(6).toString('hex')}.tmp`);
    try {
      await mkdir(dirname(target), { recursive: true });
      try {
        await symlink(relative(dirname(target), blob), draft);
      } catch (error) {
        if (!['EPERM', 'EACCES', 'ENOSYS', 'ENOTSUP'].includes(systemCode(error) ?? '')) throw error;
        await copyFile(blob, draft);
      }
      await rename(draft, target);
    } catch (error) {
      await rm(draft, { force: true });
      throw storageError(error, 'write', target, 0);
    }
  }

  /** Remembers the commit of a branch or tag; done last, when the snapshot is whole. */
  async writeRef(revision: string, commit: string): Promise<void> {
    if (isCommit(revision)) return;
    const path = join(this.directory, 'refs', revision);
    await mkdir(dirname(path), { recursive: true }).catch((error: unknown) => {
      throw storageError(error, 'write', path, commit.length);
    });
    await writeFileAtomic(path, commit);
  }

  async #readRef(revision: string): Promise<string | null> {
    try {
      const commit = (await readFile(join(this.directory, 'refs', revision), 'utf8')).trim();
      return isCommit(commit) ? commit : null;
    } catch (error) {
      if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(systemCode(error) ?? '')) return null;
      throw error;
    }
  }
}

/** Blobs appear whole, so a snapshot is whole when every file that its index names can be reached. */
async function completeness(directory: string): Promise<Completeness> {
  if (!(await allExist(directory, ['config.json']))) return 'nothing';
  try {
    const { files } = await findWeights(directory);
    if (!(await allExist(directory, files))) return 'nothing';
  } catch (error) {
    if (error instanceof InputError) return 'nothing';
    throw error;
  }
  const hasTokenizer =
    (await allExist(directory, ['tokenizer.json'])) ||
    (await allExist(directory, ['vocab.json', 'merges.txt']));
  return hasTokenizer ? 'weights-and-tokenizer' : 'weights';
}

async function allExist(directory: string, names: readonly string[]): Promise<boolean> {
  const found = names.map((name) =>
    stat(join(directory, name)).then(
      (entry) => entry.isFile(),
      () => false,
    ),
  );
  return (await Promise.all(found)).every(Boolean);
}
