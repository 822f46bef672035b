import { openModel } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';
import type { TestCounts } from './mini-runner.js';
import { minimumBudget, type Options } from './parity.js';

const causes = ['retention-hits', 'retention-misses'] as const;
const places = [7, 40, 1024] as const;

/**
 * Least recently used rows, kept by the CPU and by the GPU for the same requests, one after another in one session: what was
 * found, what moved and what is held must be equal, and so must the digests.
 */
export async function checkRetention(
  model: string,
  prompts: readonly (readonly number[])[],
  tokens: number,
  counts: TestCounts,
  log: (line: string) => void,
): Promise<void> {
  const longest = Math.max(...prompts.map((prompt) => prompt.length)) + tokens + 1;
  for (const rows of places) {
    for (const prefillChunk of [3, 128]) {
      const name = `retention ${model} lru:${rows}, chunks of ${prefillChunk}`;
      try {
        const options: Partial<SessionOptions> = {
          policy: 'retention',
          retain: `lru:${rows}`,
          prefillChunk,
          contextPositions: longest,
          clampContext: true,
        };
        const [cpu, cuda] = [
          await countsOf({ model, ...options, backend: 'cpu' }, prompts, tokens),
          await countsOf({ model, ...options, backend: 'cuda' }, prompts, tokens),
        ];
        if (cpu !== cuda) throw new Error(`the GPU has ${cuda}, the CPU ${cpu}`);
        counts.passed += 1;
        log(`ok   ${name}: ${cuda.slice(0, 160)}`);
      } catch (error) {
        const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
        counts.failures.push({ name, message });
        log(`FAIL ${name}: ${message}`);
      }
    }
  }
}

async function countsOf(
  options: Options,
  prompts: readonly (readonly number[])[],
  tokens: number,
): Promise<string> {
  const budgetBytes = Math.floor(1.1 * (await minimumBudget(options)));
  const session = await openModel({ ...options, budgetBytes });
  try {
    const digests: string[] = [];
    for (const prompt of prompts) {
      const generation = session.generate([prompt], { maxNewTokens: tokens, ignoreEos: true });
      for await (const event of generation) digests.push(event.logitsDigest.slice(0, 12));
    }
    const { moved, movedRows, heldPeak } = session.ledger.totals();
    return JSON.stringify({
      moved: causes.map((cause) => [movedRows[cause], moved[cause]]),
      held: [heldPeak['retention-slots'], heldPeak['retention-index']],
      kept: session.source.stats().keptRows,
      digests,
    });
  } finally {
    await session.close();
  }
}
