// Ending a generation from outside: node examples/abort.mjs [MODEL]
import { join } from 'node:path';
import { InterruptedError, openModel } from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-draft');
const session = await openModel({ model, contextPositions: 256 });
try {
  // AbortSignal.timeout(ms) or a request's own signal serve as well; here the fifth token ends it.
  const controller = new AbortController();
  const generation = session.generate(
    ['Once upon a time'],
    { maxNewTokens: 200 },
    { signal: controller.signal },
  );
  try {
    for await (const { index, text } of generation) {
      process.stdout.write(text);
      if (index === 4) controller.abort();
    }
  } catch (error) {
    if (!(error instanceof InterruptedError)) throw error;
    console.log(`\n${error.message} [${error.code}]`);
  }
  // What came before the abort is kept.
  const { status, requests } = generation.outcome;
  console.log(
    `${status}: ${requests[0].tokenIds.length} tokens, finish reason "${requests[0].finishReason}"`,
  );

  // The session goes on as if nothing had happened. Leaving the loop early ends a generation, too.
  const next = session.generate(['Once upon a time'], { maxNewTokens: 200, ignoreEos: true });
  for await (const { index } of next) if (index === 2) break;
  console.log(`${next.outcome.status}: ${next.outcome.requests[0].tokenIds.length} tokens`);
} finally {
  await session.close();
}
