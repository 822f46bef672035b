import { fromRandomAccessReaderPromise } from 'yauzl';
import { ExecutionError, InputError } from '../base/errors.js';
import { ZipReader } from '../base/zip-reader.js';
import type { WeightFile } from './weight-file.js';

/** A stored (uncompressed) entry of a zip archive. */
export interface ZipEntry {
  readonly name: string;
  /** Of its local header, behind which the data lies. */
  readonly headerOffset: number;
  readonly byteLength: number;
}

/** Models of today have some thousand tensors; the central directory is read entry by entry up to this many. */
const mostEntries = 200_000;

/**
 * Reads the central directory of a zip file, zip64 too, without its data. Throws `InputError`: `zip-malformed`,
 * `zip-compressed-entry`, `zip-encrypted-entry`, `zip-duplicate-entry`.
 */
export async function readZipEntries(file: WeightFile): Promise<ReadonlyMap<string, ZipEntry>> {
  const reader = new ZipReader(file);
  try {
    return await Promise.race([reader.fault, collect(file, reader)]);
  } catch (cause) {
    if (cause instanceof InputError || cause instanceof ExecutionError) throw cause;
    throw new InputError(
      'zip-malformed',
      `Reading "${file.name}" failed: ${(cause as Error).message.replace(/[.?]$/, '')}`,
      { file: file.name },
      { cause },
    );
  }
}

/** Where an entry's data begins. Throws `InputError` `zip-malformed` where the local header or the data is not there. */
export async function zipDataOffset(file: WeightFile, entry: ZipEntry): Promise<number> {
  const header = new Uint8Array(30);
  const refuse = (problem: string) =>
    new InputError('zip-malformed', `Reading "${file.name}" failed: entry "${entry.name}" ${problem}`, {
      file: file.name,
      entry: entry.name,
    });
  if (entry.headerOffset + header.byteLength > file.byteLength)
    throw refuse('begins behind the end of the file');
  await file.read(entry.headerOffset, header);
  const view = new DataView(header.buffer);
  if (view.getUint32(0, true) !== 0x04034b50) throw refuse('has no local header');
  // The local name and extra field may be longer than the central ones: torch pads with the latter.
  const offset = entry.headerOffset + 30 + view.getUint16(26, true) + view.getUint16(28, true);
  if (offset + entry.byteLength > file.byteLength) {
    throw refuse(`ends at byte ${offset + entry.byteLength}, the file at ${file.byteLength}`);
  }
  return offset;
}

async function collect(file: WeightFile, reader: ZipReader): Promise<Map<string, ZipEntry>> {
  const archive = await fromRandomAccessReaderPromise(reader, file.byteLength, { autoClose: false });
  const entries = new Map<string, ZipEntry>();
  const refuse = (code: string, problem: string) =>
    new InputError(code, `Reading "${file.name}" failed: ${problem}`, { file: file.name });
  for await (const entry of archive.eachEntry()) {
    const name = JSON.stringify(entry.fileName.slice(0, 200));
    if (entry.isEncrypted()) throw refuse('zip-encrypted-entry', `entry ${name} is encrypted`);
    if (entry.compressionMethod !== 0) {
      throw refuse(
        'zip-compressed-entry',
        `entry ${name} is compressed, wanted are stored entries, as torch.save writes`,
      );
    }
    if (entries.has(entry.fileName)) throw refuse('zip-duplicate-entry', `two entries are named ${name}`);
    if (entries.size === mostEntries)
      throw refuse('zip-malformed', `it has more than ${mostEntries} entries`);
    entries.set(entry.fileName, {
      name: entry.fileName,
      headerOffset: entry.relativeOffsetOfLocalHeader,
      byteLength: entry.compressedSize,
    });
  }
  return entries;
}
