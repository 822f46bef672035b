import { randomBytes } from 'node:crypto';
import { link, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { storageError, syncDirectory, systemCode } from './atomic-file.js';
import { UsageError } from './errors.js';
import { unfinishedFile } from './temporary-files.js';

export interface FileToWrite {
  readonly path: string;
  readonly text: string;
  /** 0o666 less the umask unless given. */
  readonly mode?: number;
}

/**
 * Writes files that belong together: all are written and flushed under temporary names before the first one gets its
 * own, so that a full disk leaves none of them. With `replace: false` nothing is written where one exists. Throws
 * `SetupError` (see `storageError`), `UsageError` `file-exists`.
 */
export async function writeFilesAtomic(
  files: readonly FileToWrite[],
  options: { readonly replace?: boolean } = {},
): Promise<void> {
  const written: { path: string; target: string; temporary: string; settled(): void }[] = [];
  const placed: string[] = [];
  let current = files[0]!;
  try {
    for (const file of files) {
      current = file;
      const target = resolve(file.path);
      const temporary = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString('hex')}.tmp`);
      written.push({ path: file.path, target, temporary, ...unfinishedFile(temporary) });
      await writeFlushed(temporary, file);
    }
    for (const [index, { target, temporary }] of written.entries()) {
      current = files[index]!;
      await (options.replace === false ? link(temporary, target) : rename(temporary, target));
      placed.push(target);
    }
  } catch (error) {
    // Only what was newly made is taken back: a replaced file is gone either way
    if (options.replace === false) for (const target of placed) await rm(target, { force: true });
    if (options.replace === false && systemCode(error) === 'EEXIST') {
      throw new UsageError('file-exists', `Cannot write "${current.path}": it exists, want a new name`, {
        path: current.path,
      });
    }
    throw storageError(error, 'write', current.path, Buffer.byteLength(current.text));
  } finally {
    for (const { temporary, settled } of written) {
      await rm(temporary, { force: true }).catch(() => {});
      settled();
    }
  }
  for (const folder of new Set(written.map(({ target }) => dirname(target)))) await syncDirectory(folder);
}

async function writeFlushed(path: string, { text, mode }: FileToWrite): Promise<void> {
  const file = await open(path, 'wx', mode ?? 0o666);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
