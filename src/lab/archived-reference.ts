import { sha256Hex } from '../base/digest.js';
import { InputError, TamperedError } from '../base/errors.js';
import { readArchiveFile } from './archive-file.js';
import { besides } from './arm-session.js';
import { auditArchive } from './audit.js';
import type { ArchivedArm, Protocol } from './protocol-schema.js';
import type { Manifest, TrialRecord } from './record-format.js';
import { itemThere, referenceProblem } from './reference-fit.js';

/** Trials of an archive by the item of this protocol that they are of. */
export type BorrowedTrials = ReadonlyMap<number, TrialRecord>;

/**
 * The trials that a reference takes from an archive: of the named arm, on items with the same prompts, on the same model, with as many
 * new tokens. The archive is audited first.
 * @throws TamperedError `reference-changed` or what the audit found broken; InputError `reference-does-not-fit`
 */
export async function borrowTrials(
  protocol: Protocol,
  arm: ArchivedArm,
  folder: string,
  items: number,
): Promise<BorrowedTrials> {
  const path = besides(folder, arm.archive.file);
  const bytes = await readArchiveFile(path);
  const found = sha256Hex(bytes);
  if (found !== arm.archive.sha256) {
    throw new TamperedError(
      'reference-changed',
      `Cannot compare with the archive "${path}": its SHA-256 is ${found}, the protocol wants ${arm.archive.sha256}`,
      { path, found, wanted: arm.archive.sha256 },
    );
  }
  const { audit, archive } = await auditArchive(bytes, { name: path });
  if (audit.broken !== null || archive === null)
    throw new TamperedError(audit.broken!.code, audit.broken!.problem, { path });
  const { part, selection } = archive.run;
  const theirs = part.protocol.protocol;
  const refuse = (problem: string): InputError =>
    new InputError('reference-does-not-fit', `Cannot compare with the archive "${path}": ${problem}`, {
      path,
    });
  const problem = referenceProblem(protocol, theirs, arm.arm);
  if (problem !== null) throw refuse(problem);
  if (part.manifest.variant === 'aa')
    throw refuse('it holds an A/A run, whose arms are not what they are called');
  const borrowed = new Map<number, TrialRecord>();
  for (let item = 0; item < items; item++) {
    const there = itemThere(protocol, theirs, item);
    const trial = selection.judged.find(
      ({ slot, status, requests }) =>
        slot.arm === arm.arm &&
        slot.item === there &&
        status === 'completed' &&
        requests.every(({ logitsDigests, newTokens }) => logitsDigests.length === newTokens),
    );
    if (there === null || trial === undefined)
      throw refuse(`it holds no trial of "${arm.arm}" on the prompts of item ${item + 1}`);
    borrowed.set(item, trial);
  }
  return borrowed;
}

/** What a run records of its borrowed reference. */
export function referenceSubjects({ archive }: ArchivedArm): Manifest['subjects'][string] {
  return [{ name: 'reference-archive', sha256: archive.sha256 }];
}
