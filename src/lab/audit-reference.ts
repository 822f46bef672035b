import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { TamperedError } from '../base/errors.js';
import { readArchive } from './archive-container.js';
import { checkSums } from './archive-layout.js';
import { type RunPart, readPart } from './archive-part.js';
import { checkPart } from './audit-part.js';
import type { TrialRecord } from './record-format.js';
import { itemThere, referenceProblem } from './reference-fit.js';

/** Records of a part that say that they are copies of an archive's. */
export function borrowedRecords({ records }: RunPart): TrialRecord[] {
  return records.filter((record) => record.kind === 'trial').filter(({ borrowed }) => borrowed !== undefined);
}

/**
 * Compares borrowed records with those of the archives that they name; null where one of these archives is not among `given`.
 * @throws TamperedError `archive-reference-differs`, or what does not hold in the archive itself
 */
export async function checkReferences(
  parts: readonly RunPart[],
  given: readonly Uint8Array[],
): Promise<number | null> {
  const bySha256 = new Map(given.map((bytes) => [sha256Hex(bytes), bytes]));
  const opened = new Map<string, RunPart>();
  let compared = 0;
  for (const part of parts) {
    for (const record of borrowedRecords(part)) {
      const { archiveSha256, record: sequence } = record.borrowed!;
      const bytes = bySha256.get(archiveSha256);
      if (bytes === undefined) return null;
      const source = opened.get(archiveSha256) ?? (await open(bytes, archiveSha256));
      opened.set(archiveSha256, source);
      const original = source.records[sequence - 1];
      const problem = fitProblem(part, source, record);
      if (problem !== null) {
        throw new TamperedError(
          'archive-reference-differs',
          `Checking the reference failed: the archive ${archiveSha256} is none for record ${record.sequence}: ${problem}`,
          { archiveSha256, record: sequence },
        );
      }
      if (original === undefined || canonicalJson(original) !== canonicalJson(asThere(record, original))) {
        throw new TamperedError(
          'archive-reference-differs',
          `Checking the reference failed: record ${record.sequence} of "${part.prefix || 'main'}" is not record ${sequence} of the archive ${archiveSha256}`,
          { archiveSha256, record: sequence },
        );
      }
      compared++;
    }
  }
  return compared;
}

/** Why trials of the archive can be no reference of the run, or null. */
function fitProblem(part: RunPart, source: RunPart, { slot, borrowed }: TrialRecord): string | null {
  const [ours, theirs] = [part.protocol.protocol, source.protocol.protocol];
  if (source.manifest.variant === 'aa') return 'it holds an A/A run, whose arms are not what they are called';
  const problem = referenceProblem(ours, theirs, borrowed!.slot.arm);
  if (problem !== null) return problem;
  const there = itemThere(ours, theirs, slot.item);
  return there === borrowed!.slot.item ? null : `its item ${borrowed!.slot.item + 1} has other prompts`;
}

/** The record as it must lie in the archive. */
function asThere({ borrowed, ...record }: TrialRecord, original: RunPart['records'][number]): object {
  if (original.kind !== 'trial') return record;
  const { sequence, previous, attempt, process, fresh } = original;
  return { ...record, slot: borrowed!.slot, sequence, previous, attempt, process, fresh };
}

async function open(bytes: Uint8Array, name: string): Promise<RunPart> {
  const members = await readArchive(bytes, name);
  checkSums(members);
  const part = readPart(members, '');
  checkPart(part);
  return part;
}
