import { createHash, randomBytes } from 'node:crypto';
import { link, open, readFile, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { brotliDecompress } from 'node:zlib';
import { storageError, syncDirectory, systemCode } from '../base/atomic-file.js';
import { InputError, TamperedError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { unfinishedFile } from '../base/temporary-files.js';
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
 * Writes an archive and, beside it, its digest: both under temporary names first, so that neither is ever half there. What
 * is evidence already is never written over.
 * @throws SetupError as `storageError`; UsageError `file-exists`, and as `archiveStream`
 */
export async function writeArchiveFile(path: string, members: Members): Promise<WrittenArchive> {
  const target = resolve(path);
  const digestPath = `${path}.sha256`;
  const mark = randomBytes(6).toString('hex');
  const drafts = [target, `${target}.sha256`].map((name) =>
    join(dirname(name), `.${basename(name)}.${mark}.tmp`),
  );
  const [zipDraft, digestDraft] = [drafts[0]!, drafts[1]!];
  const unfinished = drafts.map(unfinishedFile);
  const hash = createHash('sha256');
  let byteLength = 0;
  for (const name of [path, digestPath]) {
    const found = await stat(name).catch(() => null);
    if (found !== null) throw exists(name);
  }
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
    // Unlike a rename, a link never replaces what somebody has put there meanwhile
    await link(zipDraft, target);
    await link(digestDraft, `${target}.sha256`).catch(async (error: unknown) => {
      await rm(target, { force: true });
      throw error;
    });
    await syncDirectory(dirname(target));
    return { path, sha256, byteLength, digestPath };
  } catch (error) {
    if (systemCode(error) === 'EEXIST') throw exists(path);
    throw storageError(error, 'write', path, byteLength);
  } finally {
    for (const draft of drafts) await rm(draft, { force: true }).catch(() => {});
    for (const file of unfinished) file.settled();
  }
}

function exists(path: string): UsageError {
  return new UsageError('file-exists', `Cannot write "${path}": it exists, want a new name`, { path });
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

/**
 * The bytes of a file that shall be an archive. A name that ends in `.br` says that Brotli (RFC 7932) is around it, which
 * is how archives travel in a repository: its window reaches across a whole archive, whose runs have much in common.
 * Only what comes out is evidence; the digest of an archive is that of its zip.
 * @throws InputError `unreadable-file`, `archive-too-large`; TamperedError `archive-malformed`
 */
export async function readArchiveFile(path: string): Promise<Buffer> {
  try {
    const { size } = await stat(path);
    if (size > 2 * mostArchiveBytes) throw tooLarge(path);
    const bytes = await readFile(path);
    return path.endsWith('.br') ? await unwrapped(bytes, path) : bytes;
  } catch (cause) {
    if (cause instanceof InputError || cause instanceof TamperedError) throw cause;
    throw new InputError(
      'unreadable-file',
      `Cannot read the archive "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  }
}

/** Opened up to the size that an archive may have, whatever it would swell to. */
async function unwrapped(bytes: Buffer, path: string): Promise<Buffer> {
  try {
    return await promisify(brotliDecompress)(bytes, { maxOutputLength: 2 * mostArchiveBytes });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge(path);
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new TamperedError(
      'archive-malformed',
      `Reading the archive "${path}" failed: it is no Brotli stream: ${reason}`,
      { path },
      { cause },
    );
  }
}

function tooLarge(path: string): InputError {
  return new InputError(
    'archive-too-large',
    `Cannot read the archive "${path}": it has more than ${2 * mostArchiveBytes} bytes, no archive has`,
    { path },
  );
}
