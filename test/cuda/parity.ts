import { isExact } from '../../src/acquire/policies.js';
import { type PolicyName, policyNames } from '../../src/acquire/policy.js';
import { lowBitNames } from '../../src/checkpoint/low-bit.js';
import { closePlan, openModel, planSession } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';
import { check } from './check.js';
import type { TestCounts } from './mini-runner.js';

/** What a run of prompts is reduced to. */
interface Digests {
  readonly perRequest: readonly (readonly string[])[];
}

export interface ParityReport {
  readonly model: string;
  readonly compared: number;
  readonly digest: string;
}

export type Options = Partial<SessionOptions> & { model: string };

export async function digestsOf(
  options: Options,
  prompts: readonly (readonly number[])[],
  tokens: number,
): Promise<Digests> {
  const session = await openModel(options);
  try {
    const generation = session.generate(prompts, { maxNewTokens: tokens, ignoreEos: true });
    const perRequest: string[][] = prompts.map(() => []);
    for await (const event of generation) perRequest[event.request]!.push(event.logitsDigest);
    return { perRequest };
  } finally {
    await session.close();
  }
}

/** Smallest budget of a policy, or null where it cannot be planned. */
export async function minimumBudget(options: Options): Promise<number> {
  const plan = await planSession(options);
  try {
    return plan.placement.minimumBytes;
  } finally {
    await closePlan(plan);
  }
}

/**
 * Generates on the CPU, then on the GPU by every policy, at the smallest budget and at twice it, in chunks of several
 * sizes, alone and as a batch, with F16 and F32 caches; every logits digest must be that of the CPU.
 */
export async function checkParity(
  model: string,
  given: readonly (readonly number[])[],
  tokens: number,
  kvs: readonly ('f16' | 'f32')[],
  counts: TestCounts,
  log: (line: string) => void,
): Promise<ParityReport> {
  let compared = 0;
  let digest = '';
  const prompts = await fittingPrompts(model, given, tokens);
  const longest = Math.max(...prompts.map((prompt) => prompt.length)) + tokens + 1;
  for (const kv of kvs) {
    const base: Options = { model, kv, contextPositions: longest, clampContext: true };
    const onCpu = async (policy: PolicyName) => {
      const found: (readonly string[])[] = [];
      for (const prompt of prompts) {
        const { perRequest } = await digestsOf({ ...base, backend: 'cpu', policy }, [prompt], tokens);
        found.push(perRequest[0]!);
      }
      return found;
    };
    let expected = await onCpu('phase');
    const exact = expected;
    digest = expected[0]!.at(-1)!;
    const compare = async (name: string, options: Options, together: boolean): Promise<void> => {
      await check(`parity ${model} ${kv} ${name}`, counts, log, async () => {
        const runs = together ? [prompts] : prompts.map((prompt) => [prompt]);
        const found: (readonly string[])[] = [];
        for (const run of runs) found.push(...(await digestsOf(options, run, tokens)).perRequest);
        let different = 0;
        found.forEach((row, request) => {
          row.forEach((one, index) => {
            compared += 1;
            if (one !== expected[request]![index]) different += 1;
          });
          if (row.length !== expected[request]!.length) different += 1;
        });
        if (different > 0) throw new Error(`${different} logits digests differ from the CPU's`);
      });
    };
    for (const policy of policyNames) {
      expected = isExact(policy) ? exact : await onCpu(policy);
      const one: Options = { ...base, backend: 'cuda', policy };
      await compare(`${policy}, no limit`, one, false);
      if (policy.startsWith('resident')) continue;
      const least = await minimumBudget(one);
      for (const budgetBytes of [least, Math.floor(least * 1.4)]) {
        await compare(`${policy}, ${budgetBytes} B`, { ...one, budgetBytes }, false);
      }
    }
    expected = exact;
    for (const lowBit of lowBitNames) {
      const one: Options = { ...base, backend: 'cuda', policy: 'certified', lowBit };
      await compare(`certified by ${lowBit}, no limit`, one, false);
      const budgetBytes = await minimumBudget(one);
      await compare(`certified by ${lowBit}, ${budgetBytes} B`, { ...one, budgetBytes }, false);
    }
    const strided: Options = { ...base, backend: 'cuda', policy: 'stream', streamLayout: 'strided' };
    await compare('stream strided, no limit', strided, false);
    const budgetBytes = await minimumBudget(strided);
    await compare(`stream strided, ${budgetBytes} B`, { ...strided, budgetBytes }, false);
    for (const policy of ['resident', 'packets', 'phase', 'certified'] satisfies PolicyName[]) {
      const batch: Options = { ...base, backend: 'cuda', policy, slots: prompts.length };
      for (const prefillChunk of [1, 7, 128]) {
        await compare(
          `${policy}, batch of ${prompts.length}, chunks of ${prefillChunk}`,
          { ...batch, prefillChunk },
          true,
        );
      }
    }
  }
  return { model, compared, digest };
}

/** Prompts as far as a model's vocabulary and positions go. */
export async function fittingPrompts(
  model: string,
  prompts: readonly (readonly number[])[],
  tokens: number,
): Promise<number[][]> {
  const plan = await planSession({ model, backend: 'cpu' });
  const { vocabSize, maxPositions } = plan.prepared.description.config;
  await closePlan(plan);
  return prompts.map((prompt) => prompt.slice(0, maxPositions - tokens - 1).map((id) => id % vocabSize));
}
