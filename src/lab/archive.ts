import type { KeyObject } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { InputError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { receiptLine } from '../receipt/seal.js';
import { type Members, memberNameProblem, mostArchiveBytes, readArchive } from './archive-container.js';
import {
  archiveFiles,
  archiveLayout,
  attemptPrefix,
  checkSums,
  mainPrefix,
  noisePrefix,
  sumsOf,
  supersededMembers,
} from './archive-layout.js';
import { readPart } from './archive-part.js';
import { comparePart } from './audit-compare.js';
import { checkPart } from './audit-part.js';
import { type JudgedArchive, judgePart, labStatements } from './lab-receipt.js';
import { recordNamePattern, runFiles } from './record-format.js';
import { roCrate } from './ro-crate.js';
import { supersededNames } from './run-folder.js';

/** What an archive is made from: folders of runs, or earlier archives, which are taken apart. */
export interface ArchiveSources {
  readonly run: string;
  /** An A/A run of the same protocol. */
  readonly noise: string | null;
  /** Earlier attempts, oldest first. */
  readonly attempts: readonly string[];
  /** Files to be subjects of the receipt: JUnit results, review records. */
  readonly attachments: readonly string[];
  /** Signs the receipt. */
  readonly privateKey: KeyObject | null;
}

/** An archive that is ready to be written. */
export interface BuiltArchive {
  readonly members: Members;
  readonly archive: JudgedArchive;
}

/**
 * Collects the members of an archive and writes its receipt, judging the records as an audit does. Nothing is left out
 * that failed.
 * @throws InputError `unreadable-run`, UsageError `not-a-run`; TamperedError where a run does not hold
 */
export async function buildArchive(sources: ArchiveSources): Promise<BuiltArchive> {
  const members = new Map<string, Uint8Array>();
  const add = (prefix: string, files: Members): void => {
    for (const [name, bytes] of files) members.set(prefix + name, bytes);
  };
  let attempts = 0;
  for (const path of sources.attempts) {
    for (const files of await attemptsIn(path)) add(attemptPrefix(++attempts), files);
  }
  add(mainPrefix, await runMembers(sources.run));
  if (sources.noise !== null) add(noisePrefix, await runMembers(sources.noise));
  const prefixes = [
    mainPrefix,
    ...(sources.noise === null ? [] : [noisePrefix]),
    ...Array.from({ length: attempts }, (_, index) => attemptPrefix(index + 1)),
  ];
  const judged = prefixes.map((prefix) => {
    const part = readPart(members, prefix);
    checkPart(part);
    return judgePart(part);
  });
  const noise = sources.noise === null ? null : judged[1]!;
  const archive = { run: judged[0]!, noise, attempts: judged.slice(noise === null ? 1 : 2) };
  comparePart(archive);
  for (const path of sources.attachments) {
    const name = attachmentName(path);
    if (members.has(name)) {
      throw new UsageError(
        'attachment-name',
        `Cannot attach "${path}": another file of that name is attached`,
      );
    }
    members.set(name, await readInput(path));
  }
  const lines = labStatements(members, archive).map((statement) =>
    receiptLine(statement, sources.privateKey),
  );
  members.set(archiveFiles.receipt, text(lines.map((line) => `${line}\n`).join('')));
  members.set(archiveFiles.crate, text(roCrate(members, archive)));
  members.set(archiveFiles.sums, text(sumsOf(members)));
  return { members, archive };
}

/** Reads the folder of a run as the members that it becomes; the salt stays behind. */
export async function runMembers(folder: string): Promise<Members> {
  const names = await readdir(join(folder, 'records')).catch(() => [] as string[]);
  const records = names
    .map((name) => `records/${name}`)
    .filter((name) => recordNamePattern.test(name))
    .sort((a, b) => Number(recordNamePattern.exec(a)![1]) - Number(recordNamePattern.exec(b)![1]));
  const lines: Uint8Array[] = [];
  let total = 0;
  for (const name of records) {
    const bytes = await readInput(join(folder, name));
    total += bytes.byteLength;
    if (total > mostArchiveBytes) {
      throw new UsageError(
        'archive-too-large',
        `Cannot archive the run "${folder}": its records have more than ${mostArchiveBytes} bytes`,
      );
    }
    lines.push(bytes);
  }
  const superseded: [string, Uint8Array][] = [];
  for (const name of await supersededNames(folder))
    superseded.push([name, await readInput(join(folder, name))]);
  return new Map([
    ...superseded,
    [archiveFiles.protocol, await readInput(join(folder, runFiles.protocol))],
    [archiveFiles.manifest, await readInput(join(folder, runFiles.manifest))],
    [archiveFiles.records, Buffer.concat(lines)],
  ]);
}

/** An earlier attempt: the folder of a run, or an archive with the attempts that it keeps itself. */
async function attemptsIn(path: string): Promise<Members[]> {
  if (!path.endsWith('.zip')) return [await runMembers(path)];
  const members = await readArchive(await readInput(path), basename(path));
  checkSums(members);
  const prefixes = archiveLayout(members).prefixes.filter((prefix) => prefix !== noisePrefix);
  const [main, ...earlier] = prefixes.map(
    (prefix) =>
      new Map(
        [
          archiveFiles.protocol,
          archiveFiles.manifest,
          archiveFiles.records,
          ...supersededMembers(members, prefix),
        ].map((name) => [name, members.get(prefix + name)!] as const),
      ),
  );
  return [...earlier, main!];
}

function attachmentName(path: string): string {
  const name = `${archiveFiles.attachments}${basename(path)}`;
  const problem = memberNameProblem(name);
  if (problem === null) return name;
  throw new UsageError(
    'attachment-name',
    `Cannot attach "${path}": its name cannot stand in an archive: ${problem}`,
    {
      path,
    },
  );
}

async function readInput(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new InputError(
      'unreadable-file',
      `Cannot read "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  }
}

function text(value: string): Buffer {
  return Buffer.from(value, 'utf8');
}
