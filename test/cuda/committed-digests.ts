import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openModel } from '../../src/generate/session.js';
import { check } from './check.js';
import type { TestCounts } from './mini-runner.js';
import { minimumBudget, type Options, type ParityReport } from './parity.js';

const folder = 'test/fixtures/digests';

interface Committed {
  readonly model: string;
  readonly kv: 'f16' | 'f32';
  readonly requests: readonly {
    readonly promptIds: readonly number[];
    readonly tokenIds: readonly number[];
    readonly logitsDigests: readonly string[];
  }[];
}

/**
 * Every committed run of every trained model and layout, with F16 and F32 caches, on the GPU: everything resident, and in the
 * least memory of policy `phase`. Its tokens and logits digests are to be those of test/fixtures/digests.
 */
export async function checkCommitted(
  counts: TestCounts,
  log: (line: string) => void,
): Promise<readonly ParityReport[]> {
  const reports: ParityReport[] = [];
  for (const file of readdirSync(folder)) {
    const { model, kv, requests } = JSON.parse(readFileSync(join(folder, file), 'utf8')) as Committed;
    const path = [join('models', model), join('test/fixtures/layouts', model)].find(existsSync)!;
    const base: Options = { model: path, kv, contextPositions: 160, clampContext: true, backend: 'cuda' };
    const least: Options = { ...base, policy: 'phase' };
    let compared = 0;
    for (const options of [
      { ...base, policy: 'resident' },
      { ...least, budgetBytes: await minimumBudget(least) },
    ] satisfies Options[]) {
      await check(`committed digests ${path} ${kv} ${options.policy}`, counts, log, async () => {
        const session = await openModel(options);
        try {
          for (const { promptIds, tokenIds, logitsDigests } of requests) {
            const asked = { maxNewTokens: tokenIds.length, ignoreEos: true };
            const generation = session.generate([promptIds], asked);
            for await (const _ of generation);
            const found = generation.outcome.requests[0]!;
            const expected = [tokenIds, logitsDigests];
            if (JSON.stringify([found.tokenIds, found.logitsDigests]) !== JSON.stringify(expected)) {
              throw new Error(`a prompt of ${promptIds.length} tokens has other tokens or digests`);
            }
            compared += logitsDigests.length;
          }
        } finally {
          await session.close();
        }
      });
    }
    const digest = requests.at(-1)!.logitsDigests.at(-1)!;
    reports.push({ model: `${path}, committed, KV ${kv}`, compared, digest });
  }
  return reports;
}
