// Log-probabilities of a text: node examples/score.mjs [MODEL]
import { join } from 'node:path';
import { openModel, scoreTokens } from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-draft');
const text = 'The wind blew from the sea, and the rain came down on the roofs of the town.';

// Scoring wants the logits of every position. More rows a pass are faster and cost budget.
const session = await openModel({ model, contextPositions: 128, logitsRows: 16 });
try {
  const ids = session.tokenizer.encode(text, { addSpecialTokens: false });
  // OPT was trained with its BOS before each text: without a prefix the first token would not be scored at all.
  const { bosTokenId } = session.plan.prepared.description.config;
  const score = await scoreTokens(session, ids, { prefixId: bosTokenId });
  ids.forEach((id, index) => {
    console.log(
      `${score.logProbabilities[index].toFixed(3).padStart(8)}  ${JSON.stringify(session.tokenizer.decode([id]))}`,
    );
  });
  console.log(`perplexity ${score.perplexity.toFixed(3)} over ${score.scoredTokens} tokens`);
} finally {
  await session.close();
}
