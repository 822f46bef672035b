import { basename, dirname } from 'node:path';
import { isExact } from '../acquire/policies.js';
import type { PolicyName } from '../acquire/policy.js';
import { SetupError, TamperedError } from '../base/errors.js';
import { uniform } from '../base/philox.js';
import { openModel, type Session } from '../generate/session.js';
import type { RunPart } from './archive-part.js';
import { allArms, type Protocol, type SessionArm } from './protocol-schema.js';
import type { TrialRecord } from './record-format.js';
import { modelDigest } from './reference-fit.js';
import { type Items, readItems } from './workload.js';

/**
 * Running sampled trials of an archive again, on this machine's CPU in portable numerics: whoever made the logits, on
 * whatever device, they must come out to the last bit.
 */
export interface Reexecution {
  readonly verdict: 'equal' | 'different' | 'unmeasured';
  readonly reason: string;
  readonly trials: readonly ReexecutedTrial[];
}

export interface ReexecutedTrial {
  /** Number of the record. */
  readonly record: number;
  readonly arm: string;
  readonly item: number;
  /** Logits rows that were compared up to the first difference. */
  readonly positions: number;
  readonly equal: boolean;
}

export interface ReexecutionRequest {
  /** Trials to sample; all where there are fewer. */
  readonly count: number;
  /** Checkpoint folder. */
  readonly model: string | null;
  /** Prompt file where the protocol names one, `<file>.salt` beside it. */
  readonly prompts: string | null;
  /** Most bytes to hold; without it the whole model is held. No bit depends on it. */
  readonly budgetBytes?: number | undefined;
  readonly onTrial?: (text: string) => void;
}

interface Eligible {
  readonly record: TrialRecord;
  readonly arm: SessionArm;
}

/**
 * Samples trials (by a seed that the records fix, so that two audits sample the same) and generates them again.
 * @throws as `openModel` and `readItems` do for files that cannot be used
 */
export async function reexecuteTrials(part: RunPart, request: ReexecutionRequest): Promise<Reexecution> {
  const unmeasured = (reason: string): Reexecution => ({ verdict: 'unmeasured', reason, trials: [] });
  const { protocol } = part.protocol;
  const eligible = eligibleTrials(part);
  if (eligible.length === 0) return unmeasured('no trial holds logits digests in portable numerics');
  if (request.model === null) return unmeasured('no model was given, use --model');
  if (!Array.isArray(protocol.workload.items) && request.prompts === null) {
    return unmeasured('the protocol keeps its prompts in a file, give it with --prompts');
  }
  const sample = sampled(eligible, request.count, part.headDigest);
  const sessions = new Sessions(request.model, request.budgetBytes ?? Infinity);
  try {
    const trials: ReexecutedTrial[] = [];
    const known = new Map<string, string[][]>();
    let items: Items | null = null;
    for (const { record, arm } of sample) {
      const session = await sessions.of(arm);
      const { sourceDigest } = session.plan.prepared;
      if (sourceDigest !== protocol.model?.sourceDigest) {
        return unmeasured(
          `the model has digest ${sourceDigest}, the protocol names ${protocol.model?.sourceDigest}`,
        );
      }
      try {
        items ??= await itemsOf(protocol, request.prompts, session);
      } catch (error) {
        if (error instanceof TamperedError) return unmeasured(error.message);
        throw error;
      }
      const key = `${sessionKey(arm)} ${record.slot.item}`;
      const digests = known.get(key) ?? (await generated(session, items[record.slot.item]!, protocol));
      known.set(key, digests);
      const trial = compared(record, digests);
      trials.push(trial);
      request.onTrial?.(
        `record ${trial.record}, "${trial.arm}": ${trial.positions} rows ${trial.equal ? 'equal' : 'and then a difference'}`,
      );
    }
    return summary(trials, eligible.length);
  } finally {
    await sessions.close();
  }
}

function eligibleTrials({ protocol: { protocol }, manifest, records }: RunPart): Eligible[] {
  const arms = allArms(protocol);
  return records.flatMap((record) => {
    if (record.kind !== 'trial' || record.status !== 'completed' || record.arm.numerics !== 'portable')
      return [];
    const own = arms.find(({ name }) => name === record.slot.arm);
    // In an A/A run every measured arm runs as the first one
    const arm = manifest.variant === 'aa' && record.slot.phase !== 'reference' ? arms[0] : own;
    const whole = record.requests.every((request) => request.logitsDigests.length === request.newTokens);
    if (arm?.kind !== 'session' || !whole || record.requests.length === 0) return [];
    // An arm with a checkpoint of its own has other logits than the model that is given
    return modelDigest(protocol, arm.name) === protocol.model?.sourceDigest ? [{ record, arm }] : [];
  });
}

/** The first `count` of a shuffle (Fisher and Yates), in the order of the records. */
function sampled(trials: readonly Eligible[], count: number, headDigest: string): Eligible[] {
  const order = trials.map((_, index) => index);
  const seed = Number.parseInt(headDigest.slice(0, 13), 16);
  const taken = Math.min(count, trials.length);
  for (let place = 0; place < taken; place++) {
    const other = place + Math.floor(uniform(seed, place, 0) * (order.length - place));
    [order[place], order[other]] = [order[other]!, order[place]!];
  }
  return order
    .slice(0, taken)
    .sort((a, b) => a - b)
    .map((index) => trials[index]!);
}

async function itemsOf(protocol: Protocol, prompts: string | null, session: Session): Promise<Items> {
  const { workload } = protocol;
  if (Array.isArray(workload.items) || prompts === null) return readItems(protocol, '.', session.tokenizer);
  const items = { ...workload.items, file: basename(prompts) };
  return readItems({ ...protocol, workload: { ...workload, items } }, dirname(prompts), session.tokenizer);
}

async function generated(
  session: Session,
  prompts: Items[number],
  { workload }: Protocol,
): Promise<string[][]> {
  const digests: string[][] = [];
  for (const prompt of prompts) {
    const generation = session.generate([prompt], { maxNewTokens: workload.newTokens, ignoreEos: true });
    const rows: string[] = [];
    for await (const { logitsDigest } of generation) rows.push(logitsDigest);
    digests.push(rows);
  }
  return digests;
}

function compared({ sequence, slot, requests }: TrialRecord, digests: readonly string[][]): ReexecutedTrial {
  let positions = 0;
  let equal = requests.length === digests.length;
  for (const [index, { logitsDigests }] of requests.entries()) {
    const rows = digests[index] ?? [];
    const first = logitsDigests.findIndex((digest, row) => digest !== rows[row]);
    positions += first < 0 ? logitsDigests.length : first;
    if (first < 0 && logitsDigests.length === rows.length) continue;
    equal = false;
    break;
  }
  return { record: sequence, arm: slot.arm, item: slot.item, positions, equal };
}

function summary(trials: readonly ReexecutedTrial[], eligible: number): Reexecution {
  const different = trials.find(({ equal }) => !equal);
  const rows = trials.reduce((sum, { positions }) => sum + positions, 0);
  if (different !== undefined) {
    const reason = `record ${different.record} ("${different.arm}") has other logits than this CPU gives, after ${different.positions} equal rows`;
    return { verdict: 'different', reason, trials };
  }
  return {
    verdict: 'equal',
    reason: `${trials.length} of ${eligible} trials, ${rows} rows of logits, equal to the last bit`,
    trials,
  };
}

/** Arms of one key compute the same: which exact policy moves the weights changes no bit. */
function sessionKey({ policy, kv, contextPositions }: SessionArm): string {
  return `${isExact(policy) ? 'exact' : policy} ${kv} ${contextPositions}`;
}

/** One session a way of computing. */
class Sessions {
  readonly #model: string;
  readonly #budgetBytes: number;
  readonly #open = new Map<string, Session>();

  constructor(model: string, budgetBytes: number) {
    this.#model = model;
    this.#budgetBytes = budgetBytes;
  }

  async of(arm: SessionArm): Promise<Session> {
    const { kv, contextPositions } = arm;
    const key = sessionKey(arm);
    const known = this.#open.get(key);
    if (known !== undefined) return known;
    const session = await openModel({
      model: this.#model,
      policy: this.#policyOf(arm),
      backend: 'cpu',
      budgetBytes: this.#budgetBytes,
      kv,
      contextPositions,
    });
    if (session.backend.info.numerics !== 'portable') {
      await session.close();
      throw new SetupError(
        'no-portable-numerics',
        'Cannot run trials again: this CPU backend has no portable numerics',
      );
    }
    this.#open.set(key, session);
    return session;
  }

  /** One that computes with other weights must be the same again. Any model can be streamed. */
  #policyOf({ policy }: SessionArm): PolicyName {
    if (!isExact(policy)) return policy;
    return this.#budgetBytes === Infinity ? 'resident' : 'stream';
  }

  async close(): Promise<void> {
    for (const session of this.#open.values()) await session.close();
  }
}
