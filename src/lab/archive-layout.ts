import { sha256Hex } from '../base/digest.js';
import { TamperedError } from '../base/errors.js';
import { type Members, memberNames } from './archive-container.js';
import { runFiles } from './record-format.js';

/**
 * What an archive holds, and nothing else (docs/formats/lab-archive.md): the run, an A/A run of the same protocol under
 * `aa/`, earlier attempts under `attempts/<n>/`, each as a protocol, a manifest and records; then what is said of them.
 */
export const archiveFiles = {
  protocol: 'protocol.yaml',
  manifest: 'manifest.json',
  /** The record files of the run's folder, one after another: a line each. */
  records: 'records.jsonl',
  receipt: 'receipts/lab.intoto.jsonl',
  attachments: 'attachments/',
  crate: 'ro-crate-metadata.json',
  sums: 'SHA256SUMS',
} as const;

export const mainPrefix = '';
export const noisePrefix = 'aa/';
export const attemptPrefix = (number: number): string => `attempts/${number}/`;

const partFiles: readonly string[] = [archiveFiles.protocol, archiveFiles.manifest, archiveFiles.records];
const attemptName = /^(attempts\/([1-9]\d{0,3})\/)(.+)$/;
const supersededName = /^superseded\/[1-9]\d{0,3}\.yaml$/;
const attachmentName = /^attachments\/[^/]+$/;

export interface Layout {
  /** '' first, then `aa/` where it is there, then the attempts, oldest first. */
  readonly prefixes: readonly string[];
  readonly attachments: readonly string[];
}

/**
 * Sorts the members into parts.
 * @throws TamperedError `archive-member-missing`, `archive-member-unknown`
 */
export function archiveLayout(members: Members): Layout {
  const attempts = new Set<number>();
  let noise = false;
  const attachments: string[] = [];
  for (const name of memberNames(members)) {
    const attempt = attemptName.exec(name);
    if (attempt !== null && isOfPart(attempt[3]!)) attempts.add(Number(attempt[2]));
    else if (name.startsWith(noisePrefix) && isOfPart(name.slice(noisePrefix.length))) noise = true;
    else if (attachmentName.test(name)) attachments.push(name);
    else if (!isOwn(name)) throw unknown(name);
  }
  const count = attempts.size;
  const prefixes = [
    mainPrefix,
    ...(noise ? [noisePrefix] : []),
    ...Array.from({ length: count }, (_, index) => attemptPrefix(index + 1)),
  ];
  for (const prefix of prefixes) {
    for (const file of partFiles) member(members, prefix + file);
    // Numbered without gaps, so that a part has all of its own
    for (let number = 1; number <= supersededMembers(members, prefix).length; number++)
      member(members, prefix + runFiles.superseded(number));
  }
  for (const file of [archiveFiles.receipt, archiveFiles.crate, archiveFiles.sums]) member(members, file);
  return { prefixes, attachments };
}

/** Names of the members under a prefix that hold superseded protocols, the prefix left out. */
export function supersededMembers(members: Members, prefix: string): string[] {
  return memberNames(members)
    .filter((name) => name.startsWith(prefix) && supersededName.test(name.slice(prefix.length)))
    .map((name) => name.slice(prefix.length));
}

/** @throws TamperedError `archive-member-missing` */
export function member(members: Members, name: string): Uint8Array {
  const bytes = members.get(name);
  if (bytes !== undefined) return bytes;
  throw new TamperedError(
    'archive-member-missing',
    `Reading the archive failed: member "${name}" is missing`,
    {
      name,
    },
  );
}

/** `sha256sum` lines over all members but the list itself. */
export function sumsOf(members: Members): string {
  return memberNames(members)
    .filter((name) => name !== archiveFiles.sums)
    .map((name) => `${sha256Hex(members.get(name)!)}  ${name}\n`)
    .join('');
}

/**
 * Compares the list of digests with the members, and names the first that differs.
 * @throws TamperedError `archive-digest-mismatch`, `archive-sums-malformed`
 */
export function checkSums(members: Members): void {
  const found = Buffer.from(member(members, archiveFiles.sums)).toString('latin1').split('\n');
  const wanted = sumsOf(members).split('\n');
  for (const [index, line] of wanted.entries()) {
    if (found[index] === line) continue;
    const name = line.slice(66);
    if (name !== '' && found[index]?.slice(64) === line.slice(64)) {
      throw new TamperedError(
        'archive-digest-mismatch',
        `Checking member "${name}" failed: it has SHA-256 ${line.slice(0, 64)}, ${archiveFiles.sums} says ${JSON.stringify(found[index].slice(0, 64))}`,
        { name },
      );
    }
    break;
  }
  if (found.join('\n') === wanted.join('\n')) return;
  throw new TamperedError(
    'archive-sums-malformed',
    `Checking ${archiveFiles.sums} failed: it does not list each member once, in the order of their names`,
  );
}

function isOfPart(name: string): boolean {
  return partFiles.includes(name) || supersededName.test(name);
}

function isOwn(name: string): boolean {
  return (
    isOfPart(name) ||
    name === archiveFiles.receipt ||
    name === archiveFiles.crate ||
    name === archiveFiles.sums
  );
}

function unknown(name: string): TamperedError {
  return new TamperedError(
    'archive-member-unknown',
    `Reading the archive failed: nothing says what member "${name}" is`,
    {
      name,
    },
  );
}
