import { createHash, randomBytes } from 'node:crypto';
import { open, readFile, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { storageError, syncDirectory } from '../base/atomic-file.js';
import { InputError } from '../base/errors.js';
import { archiveStream, type Members, mostArchiveBytes } from './archive-container.js';

/** A written archive. */
export interface WrittenArchive {
  readonly path: string;
  readonly sha256: string;
  readonly byteLength: number;
  /** `sha256sum -c` reads it. */
  readonly digestPath: string;
}

/**
 * Writes an archive and, beside it, its digest: both under temporary names first, so that neither is ever half there.
 * @throws SetupError as `storageError`; UsageError as `archiveStream`
 */
export async function writeArchiveFile(path: string, members: Members): Promise<WrittenArchive> {
  const target = resolve(path);
  const digestPath = `${path}.sha256`;
  const mark = randomBytes(6).toString('hex');
  const drafts = [target, `${target}.sha256`].map((name) =>
    join(dirname(name), `.${basename(name)}.${mark}.tmp`),
  );
  const [zipDraft, digestDraft] = [drafts[0]!, drafts[1]!];
  const hash = createHash('sha256');
  let byteLength = 0;
  try {
    await writeFlushed(zipDraft, async (write) => {
      for await (const piece of archiveStream(members) as AsyncIterable<Buffer>) {
        hash.update(piece);
        byteLength += piece.length;
        await write(piece);
      }
    });
    const sha256 = hash.digest('hex');
    await writeFlushed(digestDraft, (write) =>
      write(Buffer.from(`${sha256}  ${basename(target)}\n`, 'utf8')),
    );
    await rename(zipDraft, target);
    await rename(digestDraft, `${target}.sha256`);
    await syncDirectory(dirname(target));
    return { path, sha256, byteLength, digestPath };
  } catch (error) {
    throw storageError(error, 'write', path, byteLength);
  } finally {
    for (const draft of drafts) await rm(draft, { force: true }).catch(() => {});
  }
}

async function writeFlushed(
  path: string,
  fill: (write: (bytes: Uint8Array) => Promise<unknown>) => Promise<unknown>,
): Promise<void> {
  const file = await open(path, 'wx');
  try {
    await fill((bytes) => file.writeFile(bytes));
    await file.sync();
  } finally {
    await file.close();
  }
}

/** The bytes of a file that shall be an archive. @throws InputError `unreadable-file`, `archive-too-large` */
export async function readArchiveFile(path: string): Promise<Buffer> {
  try {
    const { size } = await stat(path);
    if (size <= 2 * mostArchiveBytes) return await readFile(path);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new InputError(
      'unreadable-file',
      `Cannot read the archive "${path}": ${reason}`,
      { path },
      { cause },
    );
  }
  throw new InputError(
    'archive-too-large',
    `Cannot read the archive "${path}": it has more than ${2 * mostArchiveBytes} bytes, no archive has`,
    { path },
  );
}
