import { createInterface } from 'node:readline';
import { InputError, WaybillError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import type { EpisodeUsage, RequestTimes } from './arm-driver.js';
import { type EpisodeLine, episodeSchema } from './command-contract.js';
import type { SessionArm } from './protocol-schema.js';
import { openSessionArm } from './session-driver.js';

/**
 * A session arm in a process of its own, for first-use protocols: speaks the contract of external commands. Arguments:
 * the arm as JSON, the model's folder, the protocol's.
 */
async function main([armText = '', model = '', folder = '']: readonly string[]): Promise<void> {
  const arm = JSON.parse(armText) as SessionArm; // written by the runner, from a checked protocol
  const driver = await openSessionArm(arm, { model, folder }, new AbortController().signal);
  say({ type: 'ready', setupMoved: driver.setupMoved, arm: driver.facts });
  for await (const line of createInterface({ input: process.stdin })) {
    const episode = episodeSchema.safeParse(parseJson(line, 'standard input'));
    if (!episode.success) throw new InputError('bad-episode', 'Cannot read an episode: it is none');
    await run(episode.data);
  }
  await driver.close();

  async function run({ id, newTokens, requests, logits }: EpisodeLine): Promise<void> {
    const results = requests.map(() => ({ tokenIds: [] as number[], logitsDigests: [] as string[] }));
    const listener = {
      begin: () => {},
      token: (request: number, tokenId: number, logitsDigest: string | null, logits: string | null) => {
        results[request]!.tokenIds.push(tokenId);
        results[request]!.logitsDigests.push(logitsDigest!);
        say({ type: 'token', id, request, tokenId, logitsDigest, ...(logits === null ? {} : { logits }) });
      },
      requestEnd: (request: number, finishReason: string, times: RequestTimes) => {
        // A session may measure more than the contract has fields for
        const { prefillNs, decodeNs, totalNs, timeToFirstTokenNs } = times;
        const known = Object.entries({ prefillNs, decodeNs, totalNs, timeToFirstTokenNs }).flatMap(
          ([name, value]) => (value === null ? [] : [[name, String(value)]]),
        );
        const decodeStepNs = times.decodeStepNs.map(String);
        Object.assign(results[request]!, { finishReason, ...Object.fromEntries(known), decodeStepNs });
      },
      end: () => {},
    };
    const prompts = requests.map(({ promptIds }) => promptIds);
    const signal = new AbortController().signal;
    const usage: EpisodeUsage = await driver.runEpisode(
      { prompts, newTokens, keepLogits: logits === true },
      listener,
      signal,
    );
    const { moved, movedRows, deviceRead, peaks } = usage;
    say({
      type: 'result',
      id,
      requests: results,
      bytes: { moved, movedRows, ...(deviceRead === null ? {} : { deviceRead }) },
      peaks,
    });
  }
}

function say(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

await main(process.argv.slice(2)).catch((error: unknown) => {
  const code = error instanceof WaybillError ? error.code : 'unexpected';
  say({ type: 'error', code, message: error instanceof Error ? error.message : String(error) });
  process.exitCode = 4;
});
