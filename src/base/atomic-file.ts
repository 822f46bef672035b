import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { formatByteSize } from './byte-size.js';
import { SetupError, UsageError } from './errors.js';
import { unfinishedFile } from './temporary-files.js';

/**
 * Writes a file so that its name shows either the old bytes or all of the new ones, after a crash too: a temporary
 * file in the same folder, flushed, renamed, and the folder flushed. `mode` is 0o666 less the umask unless given;
 * with `replace: false` an existing file is left alone. Throws `SetupError` (see `storageError`), `UsageError`
 * `file-exists`.
 */
export async function writeFileAtomic(
  path: string,
  bytes: Uint8Array | string,
  options: { readonly mode?: number; readonly replace?: boolean } = {},
): Promise<void> {
  const target = resolve(path);
  const data = typeof bytes === 'string' ? Buffer.from(bytes, 'utf8') : bytes;
  const temporary = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString('hex')}.tmp`);
  const unfinished = unfinishedFile(temporary);
  try {
    const file = await open(temporary, 'wx', options.mode ?? 0o666);
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    await (options.replace === false ? linkThenUnlink(temporary, target) : rename(temporary, target));
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {});
    if (options.replace === false && systemCode(error) === 'EEXIST') {
      throw new UsageError('file-exists', `Cannot write "${path}": it exists, want a new name`, { path });
    }
    throw storageError(error, 'write', path, data.byteLength);
  } finally {
    unfinished.settled();
  }
  await syncDirectory(dirname(target));
}

/** A rename that fails with EEXIST where the target exists. */
async function linkThenUnlink(from: string, to: string): Promise<void> {
  await link(from, to);
  await rm(from);
}

export interface DirectoryBuild {
  /** Sibling of the target in which `fill` writes; on the same file system, so that the rename is one step. */
  readonly temporary: string;
  /** Bytes that the directory will need, for the message when the disk is full. */
  readonly neededBytes: number;
  fill(directory: string): Promise<void>;
}

/**
 * Builds a directory that appears whole or not at all: `fill` writes into `temporary`, every file is flushed, and one
 * rename puts it in place. The target may be absent or an empty directory. Returns false, leaving the target as it
 * is, where somebody else put a filled directory there first. Whatever goes wrong, `temporary` is gone afterwards.
 */
export async function writeDirectoryAtomic(path: string, build: DirectoryBuild): Promise<boolean> {
  const target = resolve(path);
  try {
    await mkdir(build.temporary);
    await build.fill(build.temporary);
    for (const name of await readdir(build.temporary)) await syncPath(join(build.temporary, name));
    await syncDirectory(build.temporary);
    if (!(await renameUnlessFilled(build.temporary, target))) {
      await rm(build.temporary, { recursive: true, force: true });
      return false;
    }
  } catch (error) {
    await rm(build.temporary, { recursive: true, force: true }).catch(() => {});
    throw storageError(error, 'write', path, build.neededBytes);
  }
  await syncDirectory(dirname(target));
  return true;
}

async function renameUnlessFilled(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    const code = systemCode(error);
    if (code === 'ENOTEMPTY' || code === 'EEXIST') return false;
    throw error;
  }
}

/**
 * A failed file operation as the person who meets it needs it: `SetupError` `disk-full` (ENOSPC, EDQUOT, EFBIG),
 * `not-writable` (EACCES, EPERM, EROFS), `no-such-folder`, `not-a-folder`. Any other error is given back unchanged.
 */
export function storageError(error: unknown, action: string, path: string, neededBytes: number): unknown {
  const code = systemCode(error);
  const data = { path, neededBytes: String(neededBytes), system: code };
  const size = `${neededBytes} bytes (${formatByteSize(neededBytes)})`;
  switch (code) {
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EFBIG': {
      const limit =
        code === 'ENOSPC'
          ? 'the disk is full'
          : code === 'EDQUOT'
            ? 'the quota is used up'
            : 'the file size limit is reached';
      return new SetupError('disk-full', `Cannot ${action} "${path}": ${limit}, ${size} are needed`, data, {
        cause: error,
      });
    }
    case 'EACCES':
    case 'EPERM':
    case 'EROFS': {
      const reason = code === 'EROFS' ? 'the file system is read-only' : 'permission is denied';
      return new SetupError(
        'not-writable',
        `Cannot ${action} "${path}": ${reason}, ${size} are to be written`,
        data,
        {
          cause: error,
        },
      );
    }
    case 'ENOENT':
      return new SetupError('no-such-folder', `Cannot ${action} "${path}": its folder does not exist`, data, {
        cause: error,
      });
    case 'ENOTDIR':
    case 'EEXIST':
      return new SetupError(
        'not-a-folder',
        `Cannot ${action} "${path}": a part of the path is no folder`,
        data,
        {
          cause: error,
        },
      );
    default:
      return error;
  }
}

/**
 * Makes a folder and the folders above it. Node.js's own `recursive` reports a read-only file system as ENOENT (20.20).
 * Throws `SetupError` as `storageError`; `neededBytes` is what is to be written into it.
 */
export async function makeFolders(path: string, action: string, neededBytes: number): Promise<void> {
  try {
    await makeEach(resolve(path));
  } catch (error) {
    throw storageError(error, action, path, neededBytes);
  }
}

async function makeEach(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    const code = systemCode(error);
    if (code === 'ENOENT' && dirname(path) !== path) {
      await makeEach(dirname(path));
      await mkdir(path).catch(async (again: unknown) => {
        if (!(await isFolder(path))) throw again;
      });
      return;
    }
    // A read-only disk is reported before a folder that exists on it.
    if (!(await isFolder(path))) throw error;
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

/** The `code` of a Node.js system error (`ENOSPC`), or null. */
export function systemCode(error: unknown): string | null {
  if (!(error instanceof Error) || !('syscall' in error) || !('code' in error)) return null;
  return typeof error.code === 'string' ? error.code : null;
}

/** Flushes a directory's entries. Windows cannot open a directory, and needs no flush for a rename to last. */
export async function syncDirectory(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  await syncPath(path);
}

async function syncPath(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } catch (error) {
    // Some network and overlay file systems refuse fsync on what was opened for reading; the rename still holds.
    const code = systemCode(error);
    if (code !== 'EINVAL' && code !== 'ENOTSUP' && code !== 'EBADF') throw error;
  } finally {
    await handle.close();
  }
}
