import { parseByteSize } from '../base/byte-size.js';
import { sha256Hex } from '../base/digest.js';
import { type Arm, allArms, type Protocol, type SessionArm } from './protocol-schema.js';
import type { Manifest, RequestRecord, TrialRecord } from './record-format.js';

/** What no trial of the protocol can have recorded, for the end of a sentence that begins with the record; null for a possible one. */
export function impossible(
  record: TrialRecord,
  protocol: Protocol,
  variant: Manifest['variant'],
): string | null {
  const own = allArms(protocol).find(({ name }) => name === record.slot.arm);
  // In an A/A run every measured arm runs as the first one
  const arm = variant === 'aa' && record.slot.phase !== 'reference' ? protocol.arms[0] : own;
  return (
    borrowingProblem(record, protocol) ??
    foreignProblem(record, protocol) ??
    (arm?.kind === 'session' && record.status === 'completed' ? factProblem(record, arm) : null) ??
    promptProblem(record, protocol) ??
    first(record.requests, (request, number) => requestProblem(request, number, record, protocol, arm))
  );
}

function borrowingProblem({ slot, borrowed }: TrialRecord, { reference }: Protocol): string | null {
  const source = reference?.arm.kind === 'archive' && slot.phase === 'reference' ? reference.arm : null;
  if (source === null) {
    return borrowed === undefined
      ? null
      : 'is called a copy from an archive, and the protocol takes none from there';
  }
  if (borrowed?.archiveSha256 !== source.archive.sha256)
    return `is not from the archive ${source.archive.sha256}, which the protocol names`;
  return borrowed.slot.arm === source.arm
    ? null
    : `is a copy of a trial of "${borrowed.slot.arm}", want "${source.arm}"`;
}

function foreignProblem({ machine, status }: TrialRecord, { foreignProcesses }: Protocol): string | null {
  if (foreignProcesses !== 'fatal' || status !== 'completed') return null;
  const intruded = [machine.before, machine.after].some((state) => (state.foreignProcesses?.length ?? 0) > 0);
  return intruded
    ? 'is called completed, and others computed on its GPU, which the protocol makes fatal'
    : null;
}

/** What ran is what the protocol says; where a record does not tell, there is nothing to compare. */
function factProblem({ arm: facts }: TrialRecord, arm: SessionArm): string | null {
  const budget = arm.budget === 'none' ? null : String(parseByteSize(arm.budget));
  const odd = [
    ['policy', facts.policy, arm.policy],
    ['backend', facts.backend, arm.backend === 'auto' ? facts.backend : arm.backend],
    ['numerics', facts.numerics, arm.numerics ?? facts.numerics],
    ['allowance', facts.budgetBytes, budget],
  ].find(([what, found, wanted]) => found !== wanted && (found !== null || what === 'allowance'));
  return odd === undefined ? null : `says that its ${odd[0]} was ${odd[1]}, the protocol ${odd[2]}`;
}

function promptProblem({ slot, status, requests }: TrialRecord, { workload }: Protocol): string | null {
  const prompts = Array.isArray(workload.items) ? workload.items[slot.item]?.prompts : undefined;
  if (prompts === undefined) return null;
  if (requests.length > prompts.length || (status === 'completed' && requests.length < prompts.length))
    return `has ${requests.length} requests, item ${slot.item + 1} has ${prompts.length}`;
  return first(requests, ({ promptTokens }, number) => {
    const prompt = prompts[number - 1]!;
    const tokens = 'promptIds' in prompt ? prompt.promptIds.length : prompt.tokens;
    if (promptTokens === tokens) return null;
    return `has ${promptTokens} prompt tokens in request ${number}, the protocol ${tokens}`;
  });
}

function requestProblem(
  { newTokens, logitsDigests, logits, content }: RequestRecord,
  number: number,
  { status, borrowed }: TrialRecord,
  { workload }: Protocol,
  arm: Arm | undefined,
): string | null {
  const whole = status === 'completed' && (arm?.kind === 'session' || borrowed !== undefined);
  // A session goes on past ends of sequences, so fewer tokens are work that was left out
  if (newTokens > workload.newTokens || (whole && newTokens < workload.newTokens)) {
    const most = whole ? '' : ' at most';
    return `has ${newTokens} new tokens in request ${number}, the protocol${most} ${workload.newTokens}`;
  }
  if (logitsDigests.length !== 0 && logitsDigests.length !== newTokens)
    return `has ${logitsDigests.length} digests of ${newTokens} new tokens in request ${number}`;
  if (content !== undefined && !workload.includeContent)
    return `holds token ids in request ${number}, which the protocol leaves out`;
  if (logits === undefined) return null;
  const keeps = arm !== undefined && arm.kind !== 'archive' && arm.keepLogits === true;
  if (!keeps && borrowed === undefined)
    return `holds logits in request ${number}, which the protocol leaves out`;
  if (logits.length !== logitsDigests.length)
    return `holds ${logits.length} rows of ${logitsDigests.length} logits in request ${number}`;
  const odd = logits.findIndex(
    (row, place) => sha256Hex(Buffer.from(row, 'base64')) !== logitsDigests[place],
  );
  return odd < 0 ? null : `holds logits in request ${number} that are not those of digest ${odd + 1}`;
}

/** The first problem of a list, its members numbered from 1. */
function first<Value>(
  values: readonly Value[],
  problem: (value: Value, number: number) => string | null,
): string | null {
  for (const [index, value] of values.entries()) {
    const found = problem(value, index + 1);
    if (found !== null) return found;
  }
  return null;
}
