import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll } from 'vitest';
import type { GenerateOptions } from '../../src/generate/options.js';
import type { RequestOutcome } from '../../src/generate/outcome.js';
import { openModel, type Session } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';

const layoutsFolder = resolve('test/fixtures/layouts');

/** Checkpoints that the repository holds, by name. */
export const models: Readonly<Record<string, string>> = {
  'opt-books-draft': resolve('models/opt-books-draft'),
  'opt-books-target': resolve('models/opt-books-target'),
  'reglu-books': resolve('models/reglu-books'),
  ...Object.fromEntries(readdirSync(layoutsFolder).map((name) => [name, join(layoutsFolder, name)])),
};
export const layoutNames: readonly string[] = readdirSync(layoutsFolder);

const home = mkdtempSync(join(tmpdir(), 'waybill-generate-'));
const earlierHome = process.env.HF_HOME;
process.env.HF_HOME = home; // prepared models of this file's tests
afterAll(() => {
  if (earlierHome === undefined) delete process.env.HF_HOME;
  else process.env.HF_HOME = earlierHome;
  rmSync(home, { recursive: true, force: true });
});

/** A folder of this test file that is removed after it. */
export const scratch = (name: string): string => join(home, name);

export async function withSession<Result>(
  model: string,
  options: Partial<SessionOptions>,
  use: (session: Session) => Promise<Result>,
): Promise<Result> {
  const session = await openModel({ model: models[model]!, ...options });
  try {
    return await use(session);
  } finally {
    await session.close();
  }
}

/** Runs prompts as one batch to their end. */
export async function complete(
  session: Session,
  prompts: readonly (readonly number[])[],
  options: Partial<GenerateOptions> = {},
): Promise<readonly RequestOutcome[]> {
  const generation = session.generate(prompts, { maxNewTokens: 8, ignoreEos: true, ...options });
  for await (const _ of generation);
  return generation.outcome.requests;
}

/** What must be equal whatever moved the weights. */
export const bits = ({ tokenIds, logitsDigests }: RequestOutcome) => ({ tokenIds, logitsDigests });

/** A prompt of `length` ids below `vocabSize`, the same for the same arguments. */
export function fixedPrompt(length: number, vocabSize: number, salt = 0): number[] {
  let state = (length * 2654435761 + salt * 40503 + 12345) >>> 0;
  return Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * vocabSize);
  });
}
