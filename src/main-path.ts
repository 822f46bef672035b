import { randomBytes } from 'node:crypto';
import { generateOptions } from './generate/options.js';
import { openSession, planSession } from './generate/session.js';
import { runPredicate, sessionSubjects } from './receipt/run-record.js';
import { runStatement, writeReceipt } from './receipt/seal.js';

/** The whole story: from a checkpoint to a sealed receipt. Each line is a folder; src/index.ts exports the pieces. */
export async function mainPath(
  model: string,
  prompt: string,
  budgetBytes: number,
  receipt: string,
): Promise<string> {
  // checkpoint/, memory/, backend/, acquire/: find, prepare, and decide where every byte lies, before any is held
  const plan = await planSession({ model, budgetBytes, policy: 'phase' });
  // acquire/, model/: allocate inside the budget, load what stays, put the forward pass together
  const session = await openSession(plan);
  try {
    // generate/: tokens as they come, each with the digest of the logits that chose it
    const options = generateOptions({ maxNewTokens: 48 });
    const startedAt = new Date();
    const generation = session.generate([prompt], options);
    for await (const { text } of generation) process.stdout.write(text);
    // receipt/: what moved, what was held, what came out
    const facts = { outcome: generation.outcome, options, startedAt, finishedAt: new Date() };
    const predicate = runPredicate(session, { ...facts, salt: randomBytes(32), includeContent: false });
    await writeReceipt(receipt, runStatement(sessionSubjects(session), predicate), null);
    return generation.outcome.requests[0]!.text;
  } finally {
    await session.close();
  }
}
