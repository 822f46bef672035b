// Tokens as they come: node examples/stream-tokens.mjs [MODEL] [PROMPT]
import { join } from 'node:path';
import { openModel } from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-target');
const prompt = process.argv[3] ?? 'The old house stood at the end of the road';

// The budget counts weights, KV cache, activations and workspace; the KV cache is sized by contextPositions, so a
// small context leaves more of the budget to weights.
const session = await openModel({ model, budgetBytes: 18 * 2 ** 20, contextPositions: 128 });
try {
  const generation = session.generate([prompt], { maxNewTokens: 24 });
  // A token may show no text yet: half a character is held back until the rest has come.
  for await (const { text } of generation) process.stdout.write(text);

  // The outcome is there once the iteration has ended, also where it ended early.
  const { requests, bytes } = generation.outcome;
  const { tokenIds, finishReason, logitsDigests } = requests[0];
  console.log(
    `\n${tokenIds.length} tokens, ended by ${finishReason}; at most ${bytes.totalHeldPeak} bytes held`,
  );
  console.log(`digest of the last logits: ${logitsDigests.at(-1)}`);
} finally {
  await session.close();
}
