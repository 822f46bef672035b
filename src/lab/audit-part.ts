import { TamperedError } from '../base/errors.js';
import { sourceDigest } from '../checkpoint/source-digest.js';
import type { RunPart } from './archive-part.js';
import { impossible } from './possible-trial.js';
import { programProblem } from './program-range.js';
import { allArms } from './protocol-schema.js';
import type { Manifest } from './record-format.js';
import { modelDigest } from './reference-fit.js';
import { selectRun } from './sequential.js';

/**
 * Checks that a part's manifest and records can be of its protocol.
 * @throws TamperedError `archive-schedule-differs`, `archive-record-impossible`
 */
export function checkPart({ prefix, protocol: { protocol }, manifest, records }: RunPart): void {
  const refuse = (code: string, problem: string): TamperedError =>
    new TamperedError(code, `Checking the run "${prefix || 'main'}" failed: ${problem}`, { prefix });
  const outside = programProblem(protocol, manifest.program.name);
  if (outside !== null)
    throw refuse('archive-program-outside-range', `its program is not one of the protocol: ${outside}`);
  const { frozen } = protocol;
  if (frozen === undefined || Date.parse(frozen.at) > Date.parse(manifest.startedAt)) {
    throw refuse(
      'archive-frozen-late',
      `its protocol was frozen at ${frozen?.at}, after the run began at ${manifest.startedAt}`,
    );
  }
  const names = allArms(protocol).map(({ name }) => name);
  const stranger = Object.keys(manifest.subjects).find((name) => !names.includes(name));
  if (stranger !== undefined) {
    throw refuse(
      'archive-schedule-differs',
      `the manifest has subjects of "${stranger}", which is no arm of the protocol`,
    );
  }
  for (const arm of allArms(protocol)) {
    const ran = manifest.variant === 'aa' && arm !== protocol.reference?.arm ? protocol.arms[0]! : arm;
    const wanted = ran.kind === 'session' ? modelDigest(protocol, ran.name) : undefined;
    const found = sourceDigest(checkpointFiles(manifest.subjects[arm.name] ?? []));
    if (wanted !== undefined && found !== wanted) {
      throw refuse(
        'archive-model-differs',
        `the files of arm "${arm.name}" have digest ${found}, the protocol wants ${wanted}`,
      );
    }
  }
  const { violations } = selectRun(protocol, manifest, records);
  if (violations.length > 0) throw refuse('archive-schedule-differs', violations[0]!);
  const seen = new Set<number>();
  for (const record of records) {
    if (record.kind !== 'trial') continue;
    const alone = protocol.isolation === 'process-per-trial' && record.borrowed === undefined;
    if (alone && record.status === 'completed' && (!record.fresh || seen.has(record.process))) {
      const what = record.fresh ? 'shares its process with an earlier trial' : 'set nothing up';
      throw refuse(
        'archive-record-impossible',
        `record ${record.sequence} ${what}, and the protocol has a new process for each trial`,
      );
    }
    seen.add(record.process);
    const problem = impossible(record, protocol, manifest.variant);
    if (problem !== null) throw refuse('archive-record-impossible', `record ${record.sequence} ${problem}`);
  }
}

/** The checkpoint's own files among the subjects of an arm, by their names in the checkpoint. */
function checkpointFiles(subjects: Manifest['subjects'][string]): Manifest['subjects'][string] {
  const folder = 'checkpoint/';
  return subjects
    .filter(({ name }) => name.startsWith(folder))
    .map(({ name, sha256 }) => ({ name: name.slice(folder.length), sha256 }));
}
