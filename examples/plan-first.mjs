// What a budget buys, before a weight is loaded: node examples/plan-first.mjs [MODEL]
import { join } from 'node:path';
import { closePlan, formatByteSize, openSession, parseByteSize, planSession } from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-target');

// A plan allocates nothing, so looking at many budgets is cheap.
for (const budget of ['10MiB', '14MiB', '18MiB', '22MiB', '24MiB']) {
  const plan = await planSession({ model, budgetBytes: parseByteSize(budget), contextPositions: 128 });
  const { regime, totalBytes, moved } = plan.placement;
  console.log(
    `${budget}: regime ${regime}, holds ${formatByteSize(totalBytes)}, moves ${formatByteSize(moved.expectedBytes)} a token`,
  );
  await closePlan(plan);
}

// The plan that is looked at is the plan that is carried out.
const plan = await planSession({ model, budgetBytes: parseByteSize('18MiB'), contextPositions: 128 });
const session = await openSession(plan);
try {
  const generation = session.generate(['It was a quiet morning'], { maxNewTokens: 8 });
  for await (const { text } of generation) process.stdout.write(text);
  const held = generation.outcome.bytes.totalHeldPeak;
  console.log(`\nplanned ${plan.placement.totalBytes} bytes, held at most ${held}`);
} finally {
  await session.close();
}
