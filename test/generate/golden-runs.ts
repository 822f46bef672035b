import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { bits, complete, fixedPrompt, layoutNames, withSession } from './models.js';

/** Bits of fixed runs of a model: what every backend, policy and batch must give again. */
export interface GoldenRun {
  readonly model: string;
  readonly kv: 'f16' | 'f32';
  readonly requests: readonly {
    readonly promptIds: readonly number[];
    readonly tokenIds: readonly number[];
    readonly logitsDigests: readonly string[];
  }[];
}

/** The prompts of a model's golden runs; lengths lie below, on and above a block of 128 where the context allows. */
export function goldenPrompts(capacity: number, vocabSize: number): number[][] {
  const lengths = capacity >= 160 ? [1, 7, 128, 131] : [1, 5, Math.floor(capacity / 2)];
  return lengths.map((length) => fixedPrompt(length, vocabSize));
}

export const newTokens = 8;
export const goldenModels = ['opt-books-draft', 'opt-books-target', 'reglu-books', ...layoutNames];

export const digestsFile = (model: string, kv: string): string =>
  resolve('test/fixtures/digests', `${model}.${kv}.json`);

export const readGolden = (model: string, kv: 'f16' | 'f32' = 'f16'): GoldenRun =>
  JSON.parse(readFileSync(digestsFile(model, kv), 'utf8')) as GoldenRun;

/** Runs a model's golden prompts one by one, everything resident, native or WebAssembly kernels. */
export function runGolden(model: string, kv: 'f16' | 'f32'): Promise<GoldenRun> {
  return withSession(
    model,
    { policy: 'resident', kv, contextPositions: 160, clampContext: true },
    async (session) => {
      const requests: GoldenRun['requests'][number][] = [];
      for (const promptIds of goldenPrompts(session.capacity, session.vocabSize)) {
        const [outcome] = await complete(session, [promptIds], { maxNewTokens: newTokens });
        requests.push({ promptIds, ...bits(outcome!) });
      }
      return { model, kv, requests };
    },
  );
}
