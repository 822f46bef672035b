import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { storageError, syncDirectory } from '../base/atomic-file.js';
import { SetupError, WaybillError } from '../base/errors.js';
import type { HubClient, HubFile } from './hub-client.js';
import { withPrepareLock } from './prepare-lock.js';

/** Requests in a row that may bring nothing before the download gives up. */
const largestStall = 4;
const passing = new Set(['hub-unreachable', 'hub-server-error', 'hub-rate-limited']);

export interface BlobDownload {
  readonly client: HubClient;
  readonly commit: string;
  readonly file: HubFile;
  /** Where the bytes belong, named by their digest. The folder exists. */
  readonly blobPath: string;
  /** Bytes of this file that are there, called as they come. */
  readonly onBytes: (doneBytes: number) => void;
  readonly signal?: AbortSignal | undefined;
  /** Pause before a repeated request, doubled each time; 500 ms unless a test says otherwise. */
  readonly retryDelayMs?: number | undefined;
}

/**
 * Fetches one file so that `blobPath` is either absent or whole: the bytes go to a partial file, which later calls
 * and later processes resume; length and digest are checked; then it is renamed. Throws `SetupError`
 * `hub-download-corrupt` where the digest differs, `disk-full`, and what `HubClient` throws.
 */
export async function downloadBlob(download: BlobDownload): Promise<void> {
  const { blobPath, file, signal } = download;
  await withPrepareLock(blobPath, { signal }, async () => {
    if ((await byteLengthOf(blobPath)) === file.byteLength) return;
    const partialPath = partialPathOf(blobPath);
    const resumed = (await byteLengthOf(partialPath)) ?? 0;
    let whole = await fetchInto(download, partialPath);
    // A resumed file may hold bytes that a crash or another program spoilt: once more from the start.
    if (!whole && resumed > 0) whole = await fetchInto(download, partialPath);
    if (!whole) {
      throw new SetupError(
        'hub-download-corrupt',
        `Fetching "${file.path}" failed: its bytes do not have the ${file.digest.kind} "${file.digest.hex}" that the hub states`,
        { file: file.path, byteLength: file.byteLength, ...file.digest },
      );
    }
    await rename(partialPath, blobPath);
    await syncDirectory(dirname(blobPath));
  });
}

/** Where the bytes gather until they are whole. */
export function partialPathOf(blobPath: string): string {
  return `${blobPath}.waybill-partial`;
}

/** Completes the partial file; false, with the file gone, where its digest is not the stated one. */
async function fetchInto(download: BlobDownload, partialPath: string): Promise<boolean> {
  const { file } = download;
  const handle = await open(partialPath, 'a+').then(
    async (created) => {
      await created.close();
      return await open(partialPath, 'r+');
    },
    (error: unknown) => {
      throw storageError(error, 'write', partialPath, file.byteLength);
    },
  );
  let whole: boolean;
  try {
    const partial = await PartialFile.adopt(handle, partialPath, file);
    await complete(download, partial);
    await handle.sync();
    whole = partial.matches();
  } finally {
    await handle.close();
  }
  if (!whole) await rm(partialPath, { force: true });
  return whole;
}

async function complete(download: BlobDownload, partial: PartialFile): Promise<void> {
  const { client, commit, file, onBytes, retryDelayMs = 500 } = download;
  onBytes(partial.byteLength);
  let stall = 0;
  let furthest = partial.byteLength;
  while (partial.byteLength < file.byteLength) {
    const before = partial.byteLength;
    let failure: WaybillError | null = null;
    try {
      const response = await client.open(commit, file.path, before);
      if (before > 0 && !continues(response, before)) await partial.restart();
      try {
        for await (const chunk of response.body ?? []) {
          await partial.append(chunk);
          onBytes(partial.byteLength);
        }
      } catch (cause) {
        throw client.lost(cause);
      }
    } catch (error) {
      if (!(error instanceof WaybillError)) throw error;
      // Nothing lies beyond the bytes that are there (416): they are not the file's, or the hub's copy is cut.
      const outOfRange = error.data.status === 416;
      if (outOfRange) await partial.restart();
      else if (!passing.has(error.code)) throw error;
      failure = error;
    }
    // Bytes fetched again after a restart are no progress: a hub whose copy is cut would be asked for ever.
    stall = partial.byteLength > furthest ? 0 : stall + 1;
    furthest = Math.max(furthest, partial.byteLength);
    if (partial.byteLength >= file.byteLength) return;
    if (stall >= largestStall) throw failure ?? cutShort(file, partial.byteLength);
    if (stall > 0)
      await sleep(retryDelayMs * 2 ** (stall - 1), undefined, abortable(download.signal)).catch(() => {});
  }
}

function abortable(signal: AbortSignal | undefined): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

function continues(response: Response, firstByte: number): boolean {
  return (
    response.status === 206 &&
    response.headers.get('Content-Range')?.startsWith(`bytes ${firstByte}-`) === true
  );
}

function cutShort(file: HubFile, byteLength: number): SetupError {
  return new SetupError(
    'hub-download-truncated',
    `Fetching "${file.path}" failed: the hub sends ${byteLength} of ${file.byteLength} bytes`,
    { file: file.path, byteLength, wantedByteLength: file.byteLength },
  );
}

/** The bytes so far with their running digest. */
class PartialFile {
  readonly #handle: FileHandle;
  readonly #path: string;
  readonly #file: HubFile;
  #hash: Hash;
  #byteLength = 0;

  private constructor(handle: FileHandle, path: string, file: HubFile) {
    this.#handle = handle;
    this.#path = path;
    this.#file = file;
    this.#hash = newHash(file);
  }

  /** Takes over what an earlier run left, reading it once for the digest. */
  static async adopt(handle: FileHandle, path: string, file: HubFile): Promise<PartialFile> {
    const partial = new PartialFile(handle, path, file);
    const { size } = await handle.stat();
    if (size > file.byteLength) {
      await handle.truncate(0);
      return partial;
    }
    const buffer = Buffer.allocUnsafe(1 << 20);
    while (partial.#byteLength < size) {
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, partial.#byteLength);
      if (bytesRead === 0) break;
      partial.#hash.update(buffer.subarray(0, bytesRead));
      partial.#byteLength += bytesRead;
    }
    return partial;
  }

  get byteLength(): number {
    return this.#byteLength;
  }

  async append(chunk: Uint8Array): Promise<void> {
    if (this.#byteLength + chunk.byteLength > this.#file.byteLength) {
      await this.restart();
      throw new SetupError(
        'hub-download-corrupt',
        `Fetching "${this.#file.path}" failed: the hub sends more than the ${this.#file.byteLength} bytes that it states`,
        { file: this.#file.path, byteLength: this.#file.byteLength },
      );
    }
    let written = 0;
    while (written < chunk.byteLength) {
      const position = this.#byteLength + written;
      const step = await this.#handle
        .write(chunk, written, chunk.byteLength - written, position)
        .catch((error: unknown) => {
          throw storageError(error, 'write', this.#path, this.#file.byteLength);
        });
      written += step.bytesWritten;
    }
    this.#hash.update(chunk);
    this.#byteLength += chunk.byteLength;
  }

  async restart(): Promise<void> {
    await this.#handle.truncate(0);
    this.#hash = newHash(this.#file);
    this.#byteLength = 0;
  }

  /** To be asked once, when all bytes are there. */
  matches(): boolean {
    return this.#hash.digest('hex') === this.#file.digest.hex;
  }
}

function newHash({ digest, byteLength }: HubFile): Hash {
  if (digest.kind === 'sha256') return createHash('sha256');
  // https://git-scm.com/book/en/v2/Git-Internals-Git-Objects: an object's id covers "blob <length>\0" and its bytes.
  return createHash('sha1').update(`blob ${byteLength}\0`);
}

async function byteLengthOf(path: string): Promise<number | null> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}
