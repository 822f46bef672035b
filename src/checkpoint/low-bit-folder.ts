import { type FileHandle, open, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeFolders, storageError, systemCode, writeDirectoryAtomic } from '../base/atomic-file.js';
import { sha256Hex } from '../base/digest.js';
import { InterruptedError, TamperedError } from '../base/errors.js';
import {
  decodeLowBitManifest,
  encodeLowBitManifest,
  type LowBitEntry,
  type LowBitManifest,
  lowBitFiles,
  lowBitManifestFormat,
  lowBitManifestVersion,
} from './low-bit-manifest.js';
import {
  type LockOptions,
  moveAside,
  removeLeftovers,
  temporarySibling,
  withPrepareLock,
} from './prepare-lock.js';
import { weightsAlignment } from './prepared-layout.js';
import { type DigestedBytes, requireStatedDigest, verifyDigests } from './verify-digests.js';

/** A folder of derived weights: one data file, a manifest with a digest an entry. */
export interface LowBitFolder {
  readonly directory: string;
  readonly manifestDigest: string;
  readonly entries: ReadonlyMap<string, LowBitEntry>;
  readonly file: { readonly path: string; readonly descriptor: number; readonly byteLength: number };
  close(): Promise<void>;
}

/** The manifest of a folder of this version, or null. Throws as `openOrWriteFolder`. */
export async function readFolder(directory: string): Promise<LowBitManifest | null> {
  const found = await readTrusted(directory);
  return found?.manifest ?? null;
}

/** One entry before it is written, and how to write it. */
export interface PlannedEntry
  extends Pick<LowBitEntry, 'id' | 'format' | 'directions' | 'directionExponent'> {
  readonly byteLength: number;
  /** Writes the bytes from `byteOffset` of the file on; resolves with their SHA-256. */
  write(descriptor: number, byteOffset: number, wrote: (byteLength: number) => void): Promise<string>;
}

export interface FolderOptions extends LockOptions {
  /** Manifest digest of the prepared form that it belongs to; a folder made from another is written anew. */
  readonly prepared: string;
  readonly entries: readonly PlannedEntry[];
  readonly verify?: boolean | undefined;
  /** Write it even where it is there. */
  readonly replace?: boolean | undefined;
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/**
 * Opens a folder, writing it first where it is absent, of another version, or made from something else; it appears whole
 * or not at all. Throws `TamperedError` `manifest-digest`, `weights-size`, `tensor-digest`; `SetupError`;
 * `InterruptedError`.
 */
export async function openOrWriteFolder(
  directory: string,
  options: FolderOptions,
): Promise<{ folder: LowBitFolder; writtenNow: boolean }> {
  const found = options.replace === true ? null : await openFolder(directory, options);
  if (found !== null) return { folder: found, writtenNow: false };
  await makeFolders(dirname(directory), 'prepare in', totalOf(options.entries));
  return withPrepareLock(directory, options, async () => {
    const again = options.replace === true ? null : await openFolder(directory, options);
    if (again !== null) return { folder: again, writtenNow: false };
    await writeFolder(directory, options);
    return { folder: (await openFolder(directory, options))!, writtenNow: true };
  });
}

async function readTrusted(
  directory: string,
): Promise<{ manifest: LowBitManifest; manifestDigest: string } | null> {
  const path = join(directory, lowBitFiles.manifest);
  const bytes = await readIfThere(path);
  const line = await readIfThere(join(directory, lowBitFiles.digest));
  if (bytes === null || line === null) return null;
  const manifestDigest = sha256Hex(bytes);
  requireStatedDigest(directory, lowBitFiles, manifestDigest, Buffer.from(line).toString('utf8'));
  const manifest = decodeLowBitManifest(bytes, path);
  return manifest === null ? null : { manifest, manifestDigest };
}

/**
 * Reads every byte of a folder against its manifest; null where there is none of this version, made from this prepared form.
 * Throws as `openOrWriteFolder`.
 */
export async function verifyFolder(
  directory: string,
  prepared: string,
  watch: Pick<FolderOptions, 'signal' | 'onProgress'> = {},
): Promise<LowBitManifest | null> {
  const found = await readTrusted(directory);
  if (found === null || found.manifest.prepared !== prepared) return null;
  const data = await openData(directory, found.manifest);
  if (data === null) return null;
  try {
    await verifyDigests(data.file, data.path, found.manifest.entries.map(placed), watch);
    return found.manifest;
  } finally {
    await data.file.close();
  }
}

/** The data file, as long as its manifest says; null where it is absent. */
async function openData(
  directory: string,
  { byteLength }: LowBitManifest,
): Promise<{ readonly path: string; readonly file: FileHandle } | null> {
  const path = join(directory, lowBitFiles.data);
  const file = await open(path, 'r').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return null;
    throw storageError(error, 'open', path, 0);
  });
  if (file === null) return null;
  const { size } = await file.stat();
  if (String(size) === byteLength) return { path, file };
  await file.close();
  throw new TamperedError(
    'weights-size',
    `Cannot use "${path}": it has ${size} bytes, its manifest says ${byteLength}`,
    { path, actualBytes: String(size), wantedBytes: byteLength },
  );
}

async function openFolder(directory: string, options: FolderOptions): Promise<LowBitFolder | null> {
  const found = await readTrusted(directory);
  if (found === null) return null;
  const { manifest, manifestDigest } = found;
  if (manifest.prepared !== options.prepared) return null;
  if (!sameEntries(manifest.entries, options.entries)) return null;
  const data = await openData(directory, manifest);
  if (data === null) return null;
  const { path, file } = data;
  try {
    if (options.verify === true) {
      await verifyDigests(file, path, manifest.entries.map(placed), { signal: options.signal });
    }
  } catch (error) {
    await file.close();
    throw error;
  }
  let closed = false;
  return {
    directory,
    manifestDigest,
    entries: new Map(manifest.entries.map((entry) => [entry.id, entry])),
    file: { path, descriptor: file.fd, byteLength: Number(manifest.byteLength) },
    async close() {
      if (closed) return;
      closed = true;
      await file.close();
    },
  };
}

async function readIfThere(path: string): Promise<Uint8Array | null> {
  try {
    return await readFile(path);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(systemCode(error) ?? '')) return null;
    throw storageError(error, 'open', path, 0);
  }
}

function sameEntries(listed: readonly LowBitEntry[], planned: readonly PlannedEntry[]): boolean {
  const facts = ({ id, format, directions, directionExponent, byteLength }: LowBitEntry | PlannedEntry) =>
    [id, format, directions, directionExponent, String(byteLength)].join();
  return listed.map(facts).join('\n') === planned.map(facts).join('\n');
}

async function writeFolder(
  directory: string,
  { prepared, entries, signal, onProgress }: FolderOptions,
): Promise<void> {
  await removeLeftovers(directory);
  const totalBytes = totalOf(entries);
  let doneBytes = 0;
  const wrote = (byteLength: number) => {
    doneBytes += byteLength;
    onProgress?.(doneBytes, totalBytes);
    if (signal?.aborted === true) {
      throw new InterruptedError('interrupted', `Cannot prepare "${directory}": cancelled`, { directory });
    }
  };
  const fill = async (temporary: string) => {
    const file = await open(join(temporary, lowBitFiles.data), 'wx+');
    const written: LowBitEntry[] = [];
    let end = 0;
    try {
      for (const { write, byteLength, id, format, directions, directionExponent } of entries) {
        const sha256 = await write(file.fd, end, wrote);
        const place = { byteOffset: String(end), byteLength: String(byteLength) };
        written.push({ id, format, directions, directionExponent, ...place, sha256 });
        end = Math.ceil((end + byteLength) / weightsAlignment) * weightsAlignment;
      }
      await file.truncate(end);
    } finally {
      await file.close();
    }
    const manifest = encodeLowBitManifest({
      format: lowBitManifestFormat,
      version: lowBitManifestVersion,
      prepared,
      byteLength: String(end),
      entries: written,
    });
    await writeFile(join(temporary, lowBitFiles.manifest), manifest);
    await writeFile(join(temporary, lowBitFiles.digest), `${sha256Hex(manifest)}  ${lowBitFiles.manifest}\n`);
    setAside = await moveAside(directory);
  };
  let setAside: string | null = null;
  try {
    await writeDirectoryAtomic(directory, {
      temporary: temporarySibling(directory),
      neededBytes: totalBytes,
      fill,
    });
  } finally {
    if (setAside !== null) await rm(setAside, { recursive: true, force: true });
  }
}

function placed({ id, sha256, byteOffset, byteLength }: LowBitEntry): DigestedBytes {
  return { id, sha256, byteOffset: Number(byteOffset), byteLength: Number(byteLength) };
}

function totalOf(entries: readonly PlannedEntry[]): number {
  return entries.reduce((sum, { byteLength }) => sum + byteLength, 0);
}
