import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { type Entry, fromRandomAccessReaderPromise, type ZipFile } from 'yauzl';
import { ZipFile as ZipWriter } from 'yazl';
import { TamperedError, UsageError } from '../base/errors.js';
import { bytesSource, ZipReader } from '../base/zip-reader.js';

/**
 * The zip of an archive (docs/formats/lab-archive.md). Members are stored, in the order of their names, with fixed times
 * and modes, so that the members decide every byte: a reader builds the zip again and compares. Stored, because what
 * deflate gives differs between processors, and because nothing stored can swell when it is read.
 */
export type Members = ReadonlyMap<string, Uint8Array>;

/** Written and read alike, so that no archive is made that nobody can audit. */
export const mostArchiveBytes = 1024 * 1024 * 1024;
export const mostMembers = 10_000;
const mostNameLength = 200;

/** Slash-separated, each part beginning with a letter or digit: no climbing, no root, no drive, no hidden file. */
const memberName =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?\/)*[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?$/;

/** Why no member may have this name, or null. */
export function memberNameProblem(name: string): string | null {
  if (name.length > mostNameLength) return `it has ${name.length} characters, want at most ${mostNameLength}`;
  if (name.startsWith('/') || /^[A-Za-z]:/.test(name) || name.includes('\\'))
    return 'it is an absolute or Windows path';
  if (name.split('/').some((part) => part === '..' || part === '.')) return 'it climbs out of the archive';
  if (name.endsWith('/')) return 'it is a folder';
  if (!memberName.test(name)) return 'it holds other characters than letters, digits, ".", "_" and "-"';
  return null;
}

/** The members in the order in which every list of them is written. */
export function memberNames(members: Members): string[] {
  return [...members.keys()].sort((a, b) => (a < b ? -1 : 1));
}

/** The bytes of the zip, piece by piece. @throws UsageError `archive-member-name`, `archive-too-large` */
export function archiveStream(members: Members): Readable {
  let total = 0;
  for (const [name, bytes] of members) {
    const problem = memberNameProblem(name);
    if (problem !== null) {
      throw new UsageError('archive-member-name', `Cannot archive ${quote(name)}: ${problem}`, { name });
    }
    total += bytes.byteLength;
  }
  if (total > mostArchiveBytes || members.size > mostMembers) {
    throw new UsageError(
      'archive-too-large',
      `Cannot archive ${members.size} members of ${total} bytes: want at most ${mostMembers} of ${mostArchiveBytes}`,
      { members: members.size, bytes: String(total) },
    );
  }
  const zip = new ZipWriter();
  const options = {
    compress: false,
    mode: 0o100644,
    mtime: new Date(1980, 0, 1, 12), // the first year that the format knows; local, as yazl reads it
    forceDosTimestamp: true,
  };
  for (const name of memberNames(members)) zip.addBuffer(view(members.get(name)!), name, options);
  zip.end();
  return Readable.from(zip.outputStream);
}

/**
 * Takes an archive apart, trusting nothing in it.
 * @throws TamperedError whose code begins with `archive-` and that names the first thing that does not hold
 */
export async function readArchive(bytes: Uint8Array, name: string): Promise<Members> {
  const refuse = (code: string, problem: string, cause?: unknown): TamperedError =>
    new TamperedError(code, `Reading the archive ${quote(name)} failed: ${problem}`, { name }, { cause });
  if (bytes.byteLength > mostArchiveBytes + mostMembers * 512) {
    throw refuse(
      'archive-too-large',
      `it has ${bytes.byteLength} bytes, at most ${mostArchiveBytes} are read`,
    );
  }
  const reader = new ZipReader(bytesSource(bytes));
  let members: Map<string, Uint8Array>;
  try {
    members = await Promise.race([reader.fault, takeApart(bytes, reader, refuse)]);
  } catch (cause) {
    if (cause instanceof TamperedError) throw cause;
    const text = cause instanceof Error ? cause.message : String(cause);
    throw refuse('archive-malformed', text.replace(/[.?]$/, '').replace(/\s+/g, ' '), cause);
  }
  const at = await firstDifference(members, bytes);
  if (at === null) return members;
  throw refuse(
    'archive-not-canonical',
    `byte ${at} is not what its members give: a header was changed, or another program packed it`,
  );
}

type Refuse = (code: string, problem: string) => TamperedError;

async function takeApart(
  bytes: Uint8Array,
  reader: ZipReader,
  refuse: Refuse,
): Promise<Map<string, Uint8Array>> {
  const zip = await fromRandomAccessReaderPromise(reader, bytes.byteLength, {
    autoClose: false,
    strictFileNames: true,
  });
  // Each member has at least 76 bytes of headers
  if (zip.entryCount > mostMembers || zip.entryCount * 76 > bytes.byteLength) {
    throw refuse(
      'archive-malformed',
      `it says that it has ${zip.entryCount} members, which its size cannot hold`,
    );
  }
  const members = new Map<string, Uint8Array>();
  const folded = new Set<string>();
  let total = 0;
  for await (const entry of zip.eachEntry()) {
    checkEntry(entry, refuse);
    if (members.has(entry.fileName)) {
      throw refuse('archive-duplicate-name', `two members are named ${quote(entry.fileName)}`);
    }
    const fold = entry.fileName.toLowerCase();
    if (folded.has(fold)) {
      throw refuse(
        'archive-case-collision',
        `two members are named ${quote(entry.fileName)} but for upper and lower case`,
      );
    }
    total += entry.uncompressedSize;
    if (total > bytes.byteLength) {
      throw refuse(
        'archive-wrong-size',
        `its members up to ${quote(entry.fileName)} have ${total} bytes, more than the file`,
      );
    }
    folded.add(fold);
    members.set(entry.fileName, await memberBytes(zip, entry, bytes, refuse));
  }
  return members;
}

function checkEntry(entry: Entry, refuse: Refuse): void {
  const name = quote(entry.fileName);
  const problem = memberNameProblem(entry.fileName);
  if (problem !== null) throw refuse('archive-unsafe-name', `member ${name} has an unsafe name: ${problem}`);
  const kind = (entry.externalFileAttributes >>> 16) & 0o170000;
  if (kind === 0o120000) throw refuse('archive-link', `member ${name} is a symbolic link`);
  if (kind !== 0o100000) throw refuse('archive-not-a-file', `member ${name} is no regular file`);
  if (entry.isEncrypted()) throw refuse('archive-encrypted', `member ${name} is encrypted`);
  if (entry.compressionMethod !== 0)
    throw refuse('archive-compressed', `member ${name} is compressed, want it stored`);
  if (entry.compressedSize !== entry.uncompressedSize) {
    throw refuse(
      'archive-wrong-size',
      `member ${name} has ${entry.uncompressedSize} bytes but takes ${entry.compressedSize}`,
    );
  }
}

async function memberBytes(
  zip: ZipFile,
  entry: Entry,
  bytes: Uint8Array,
  refuse: Refuse,
): Promise<Uint8Array> {
  const name = quote(entry.fileName);
  const { fileDataStart } = await zip.readLocalFileHeaderPromise(entry, { minimal: true });
  const end = fileDataStart + entry.compressedSize;
  if (end > bytes.byteLength) {
    throw refuse('archive-wrong-size', `member ${name} ends at byte ${end}, the file at ${bytes.byteLength}`);
  }
  const data = bytes.subarray(fileDataStart, end);
  const found = crc32(data);
  if (found !== entry.crc32) {
    throw refuse(
      'archive-wrong-crc',
      `member ${name} has CRC-32 ${hex(found)}, its header says ${hex(entry.crc32)}`,
    );
  }
  return data;
}

/** The first byte in which an archive of these members is another one than `bytes`, or null. */
async function firstDifference(members: Members, bytes: Uint8Array): Promise<number | null> {
  const whole = view(bytes);
  let at = 0;
  for await (const piece of archiveStream(members) as AsyncIterable<Buffer>) {
    const there = whole.subarray(at, at + piece.length);
    if (!piece.equals(there)) {
      const index = piece.findIndex((byte, offset) => byte !== there[offset]);
      return at + index;
    }
    at += piece.length;
  }
  return at === bytes.byteLength ? null : at;
}

function view(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function hex(value: number): string {
  return value.toString(16).padStart(8, '0');
}

/** Names of hostile files, short and without control characters. */
function quote(name: string): string {
  return JSON.stringify(name.slice(0, mostNameLength));
}
