import { sha256Hex } from '../base/digest.js';
import { TamperedError } from '../base/errors.js';
import type { RunPart } from './archive-part.js';
import { programProblem } from './program-range.js';
import { allArms, type Protocol } from './protocol-schema.js';
import type { TrialRecord } from './record-format.js';
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
  const names = allArms(protocol).map(({ name }) => name);
  const stranger = Object.keys(manifest.subjects).find((name) => !names.includes(name));
  if (stranger !== undefined) {
    throw refuse(
      'archive-schedule-differs',
      `the manifest has subjects of "${stranger}", which is no arm of the protocol`,
    );
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
    const problem = impossible(record, protocol);
    if (problem !== null) throw refuse('archive-record-impossible', `record ${record.sequence} ${problem}`);
  }
}

/** What no trial of the protocol can have recorded. */
function impossible(record: TrialRecord, protocol: Protocol): string | null {
  const { slot, status, requests, borrowed, machine } = record;
  const { workload } = protocol;
  const reference = protocol.reference?.arm;
  const wanted =
    reference?.kind === 'archive' && slot.phase === 'reference' ? reference.archive.sha256 : undefined;
  if (borrowed?.archiveSha256 !== wanted) {
    return wanted === undefined
      ? 'is called a copy from an archive, and the protocol takes none from there'
      : `is not from the archive ${wanted}, which the protocol names`;
  }
  const intruded = [machine.before, machine.after].some((state) => (state.foreignProcesses?.length ?? 0) > 0);
  if (protocol.foreignProcesses === 'fatal' && status === 'completed' && intruded)
    return 'is called completed, and others computed on its GPU, which the protocol makes fatal';
  const prompts = Array.isArray(workload.items) ? workload.items[slot.item]?.prompts : undefined;
  if (prompts !== undefined) {
    if (requests.length > prompts.length || (status === 'completed' && requests.length < prompts.length)) {
      return `has ${requests.length} requests, item ${slot.item + 1} has ${prompts.length}`;
    }
    for (const [index, request] of requests.entries()) {
      const prompt = prompts[index]!;
      const tokens = 'promptIds' in prompt ? prompt.promptIds.length : prompt.tokens;
      if (request.promptTokens !== tokens) {
        return `has ${request.promptTokens} prompt tokens in request ${index + 1}, the protocol ${tokens}`;
      }
    }
  }
  for (const [index, { newTokens, logitsDigests, logits, content }] of requests.entries()) {
    const odd = logits?.findIndex(
      (row, place) => sha256Hex(Buffer.from(row, 'base64')) !== logitsDigests[place],
    );
    if (odd !== undefined && odd >= 0)
      return `holds logits in request ${index + 1} that are not those of digest ${odd + 1}`;
    if (logits !== undefined && logits.length !== logitsDigests.length)
      return `holds ${logits.length} rows of ${logitsDigests.length} logits in request ${index + 1}`;
    if (newTokens > workload.newTokens) {
      return `has ${newTokens} new tokens in request ${index + 1}, the protocol at most ${workload.newTokens}`;
    }
    if (logitsDigests.length !== 0 && logitsDigests.length !== newTokens) {
      return `has ${logitsDigests.length} digests of ${newTokens} new tokens in request ${index + 1}`;
    }
    if (content !== undefined && !workload.includeContent) {
      return `holds token ids in request ${index + 1}, which the protocol leaves out`;
    }
  }
  return null;
}
