import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { PolicyName } from '../../src/acquire/policy.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { generateOptions } from '../../src/generate/options.js';
import { checkRestored } from '../../src/generate/restore-check.js';
import { openModel, openSession, planSession, type Session } from '../../src/generate/session.js';
import { sessionOptions } from '../../src/generate/session-options.js';
import { check } from './check.js';
import type { TestCounts } from './mini-runner.js';
import { fittingPrompts, minimumBudget, type Options, type ParityReport } from './parity.js';

const run = promisify(execFile);
const batchSize = 8;

/** One way to run a model on the GPU, whose logits are to be the CPU's. */
interface Case {
  readonly name: string;
  readonly options: Options;
  readonly graphs?: boolean;
}

/**
 * What `checkParity` leaves out: full batches of 8 prompts, passes launched kernel by kernel instead of as graphs, late guesses,
 * guesses and hot sets by a recorded profile (of models with a tokenizer), and all weights brought back to the device.
 * Every logits digest must be that of the CPU, which computes prompt by prompt.
 */
export async function checkMoreParity(
  model: string,
  given: readonly (readonly number[])[],
  tokens: number,
  counts: TestCounts,
  log: (line: string) => void,
): Promise<ParityReport> {
  const prompts = await batchOf(model, given, tokens);
  const longest = Math.max(...prompts.map((prompt) => prompt.length)) + tokens + 1;
  const base: Options = { model, kv: 'f16', contextPositions: longest, clampContext: true, slots: batchSize };
  const cpu = await openModel({ ...base, backend: 'cpu', policy: 'phase' });
  const expected: string[] = [];
  for (const prompt of prompts) expected.push(...(await digestsOf(cpu, [prompt], tokens)));
  await cpu.close();
  let compared = 0;
  const attempt = (name: string, work: () => Promise<readonly string[]>): Promise<void> =>
    check(`parity ${model} ${name}`, counts, log, async () => {
      const found = await work();
      compared += found.length;
      const different = expected.filter((digest, index) => digest !== found[index]).length;
      if (different > 0 || found.length !== expected.length) {
        throw new Error(`${different} of ${expected.length} logits digests differ from the CPU's`);
      }
    });
  const folder = await mkdtemp(join(tmpdir(), 'waybill-parity-'));
  try {
    for (const { name, options, graphs = true } of await casesOf(base, folder)) {
      await attempt(`${name}, batch of ${batchSize}`, async () => {
        const session = await openWith(options, graphs);
        try {
          return await digestsOf(session, prompts, tokens);
        } finally {
          await session.close();
        }
      });
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  await attempt('every weight brought back', async () => {
    const budgetBytes = await minimumBudget({ ...base, backend: 'cuda', policy: 'packets' });
    const options = sessionOptions({ ...base, backend: 'cuda', policy: 'packets', budgetBytes });
    const session = await openModel(options);
    const generating = generateOptions({ maxNewTokens: tokens, ignoreEos: true });
    const generation = session.generate(prompts, generating);
    for await (const _ of generation);
    await session.close();
    const { requests } = generation.outcome;
    const check = await checkRestored(options, requests, generating);
    if (check.difference !== null) throw new Error(JSON.stringify(check.difference));
    return requests.flatMap(({ logitsDigests }) => logitsDigests);
  });
  return { model: `${model}, batches of ${batchSize}`, compared, digest: expected.at(-1)! };
}

async function casesOf(base: Options, folder: string): Promise<Case[]> {
  const cases: Case[] = [];
  const bounded = async (name: string, options: Partial<Options>, graphs?: boolean): Promise<void> => {
    const one: Options = { ...base, backend: 'cuda', ...options };
    const budgetBytes = await minimumBudget(one);
    cases.push({ name, options: { ...one, budgetBytes }, ...(graphs === undefined ? {} : { graphs }) });
  };
  for (const policy of ['resident-sparse', 'packets', 'certified', 'stream'] satisfies PolicyName[]) {
    await bounded(policy, { policy });
    await bounded(`${policy}, no graphs`, { policy }, false);
  }
  await bounded('retention', { policy: 'retention' });
  await bounded('early guesses', { policy: 'forecast' });
  await bounded('late guesses', { policy: 'forecast', forecast: 'late' });
  await bounded('late guesses, no graphs', { policy: 'forecast', forecast: 'late' }, false);
  if (existsSync(join(base.model, 'tokenizer.json'))) {
    const profile = join(folder, 'profile.json');
    const text = join(base.model, 'README.md');
    const asked = ['--model', base.model, '--text', text, '-o', profile, '--learn-guesser'];
    await run(process.execPath, ['bin/waybill.js', 'profile', ...asked]);
    await bounded('a hot set', { policy: 'retention', retain: 'hot:auto', profile });
    await bounded('learned guesses', { policy: 'forecast', guesser: 'residual', profile });
  }
  return cases;
}

async function openWith(options: Options, graphs: boolean): Promise<Session> {
  if (graphs) return openModel(options);
  const plan = await planSession(options);
  await plan.backend.close();
  return openSession({ ...plan, backend: await openCuda({ graphs }) });
}

async function digestsOf(
  session: Session,
  prompts: readonly (readonly number[])[],
  tokens: number,
): Promise<string[]> {
  const generation = session.generate(prompts, { maxNewTokens: tokens, ignoreEos: true });
  for await (const _ of generation);
  return generation.outcome.requests.flatMap(({ logitsDigests }) => logitsDigests);
}

/** Eight prompts of different lengths, out of the given ones and what they begin with. */
async function batchOf(
  model: string,
  given: readonly (readonly number[])[],
  tokens: number,
): Promise<number[][]> {
  const prompts = await fittingPrompts(model, given, tokens);
  const longest = prompts.reduce((a, b) => (b.length > a.length ? b : a));
  while (prompts.length < batchSize) prompts.push(longest.slice(0, 2 + prompts.length));
  return prompts;
}
