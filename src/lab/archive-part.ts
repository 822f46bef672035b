import { sha256Hex } from '../base/digest.js';
import { TamperedError } from '../base/errors.js';
import type { Members } from './archive-container.js';
import { archiveFiles, member, supersededMembers } from './archive-layout.js';
import type { ProtocolFile } from './protocol-file.js';
import { readRun } from './read-run.js';
import { type Manifest, type RunRecord, runFiles } from './record-format.js';

/** A record has a kilobyte and more, and an archive at most 1 GiB. */
const mostRecords = 1_000_000;

/** A run as an archive holds it: read strictly, its chain of records whole. Nothing of it is believed by that. */
export interface RunPart {
  /** '' for the run itself, `aa/`, or `attempts/1/`. */
  readonly prefix: string;
  readonly protocol: ProtocolFile;
  /** What it supersedes, the nearest first. */
  readonly superseded: readonly ProtocolFile[];
  /** SHA-256 of the protocol's bytes, as they lie in the archive. */
  readonly protocolFileDigest: string;
  readonly manifest: Manifest;
  readonly manifestDigest: string;
  readonly records: readonly RunRecord[];
  /** SHA-256 of the last record, of the manifest where there is none: it fixes all before it. */
  readonly headDigest: string;
}

/** Reads the part of an archive under a prefix. @throws TamperedError as `readRun`, `archive-member-missing` */
export function readPart(members: Members, prefix: string): RunPart {
  const files = runFilesOf(members, prefix);
  const { protocolFile, superseded, manifest, records, head } = readRun(
    files,
    prefix === '' ? 'main' : prefix,
  );
  return {
    prefix,
    protocol: protocolFile,
    superseded,
    protocolFileDigest: sha256Hex(files.get(runFiles.protocol)!),
    manifest,
    manifestDigest: sha256Hex(files.get(runFiles.manifest)!),
    records,
    headDigest: head,
  };
}

/** The files of the folder that a part was made from: a line of the records is a file. */
export function runFilesOf(members: Members, prefix: string): Map<string, Uint8Array> {
  const files = new Map<string, Uint8Array>([
    [runFiles.protocol, member(members, prefix + archiveFiles.protocol)],
    [runFiles.manifest, member(members, prefix + archiveFiles.manifest)],
  ]);
  for (const name of supersededMembers(members, prefix)) files.set(name, member(members, prefix + name));
  const records = member(members, prefix + archiveFiles.records);
  for (let at = 0, sequence = 1; at < records.length; sequence++) {
    if (sequence > mostRecords) {
      throw new TamperedError(
        'archive-too-many-records',
        `Reading the archive failed: "${prefix}${archiveFiles.records}" has more than ${mostRecords} lines, and no run has`,
      );
    }
    const newline = records.indexOf(0x0a, at);
    const end = newline < 0 ? records.length : newline + 1;
    files.set(runFiles.record(sequence), records.subarray(at, end));
    at = end;
  }
  return files;
}
