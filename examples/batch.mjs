// Several prompts in one batch: node examples/batch.mjs [MODEL]
import { join } from 'node:path';
import { openModel } from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-draft');
const prompts = ['The ship left the harbour', 'In the beginning', 'She opened the door and'];

// Each request under way needs a slot of the KV cache; the budget counts all slots, so they are asked for here.
const session = await openModel({ model, slots: prompts.length, contextPositions: 64 });
try {
  const options = { maxNewTokens: 12 };
  const batch = session.generate(prompts, options);
  // One pass gives each request a token, so the events of requests alternate; `request` says whose it is.
  for await (const { request, tokenId, elapsedNs } of batch) {
    console.log(`${(Number(elapsedNs) / 1e6).toFixed(1)} ms: request ${request} got token ${tokenId}`);
  }
  for (const { text, finishReason } of batch.outcome.requests)
    console.log(JSON.stringify(text), finishReason);

  // A request does not see its neighbours: alone it has the same logits, bit for bit.
  const alone = session.generate([prompts[1]], options);
  for await (const _ of alone);
  const [one, two] = [alone.outcome.requests[0], batch.outcome.requests[1]];
  console.log(
    `alone and in the batch: ${one.logitsDigests.join() === two.logitsDigests.join() ? 'equal' : 'DIFFERENT'}`,
  );
} finally {
  await session.close();
}
