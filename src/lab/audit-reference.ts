import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { TamperedError } from '../base/errors.js';
import { readArchive } from './archive-container.js';
import { checkSums } from './archive-layout.js';
import { type RunPart, readPart } from './archive-part.js';
import { checkPart } from './audit-part.js';
import type { TrialRecord } from './record-format.js';

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
