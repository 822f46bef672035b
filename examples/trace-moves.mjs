// Every move of weight bytes, as it is asked for: node examples/trace-moves.mjs [MODEL]
import { join } from 'node:path';
import { formatByteSize, openModel } from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-target');

// A trace tells which weight moved when, and how many rows; never which neurons, prompt or value.
const moves = [];
const session = await openModel(
  { model, policy: 'phase', budgetBytes: 18 * 2 ** 20, contextPositions: 128 },
  { onMove: (move) => moves.push(move) },
);
try {
  const generation = session.generate(['The old man looked at the sea'], { maxNewTokens: 6 });
  for await (const _ of generation);

  // Pass 0 is the opening, pass 1 the prompt; `phase` streams whole matrices there and moves rows after it.
  const passes = groupByPass(moves);
  for (const [pass, ofPass] of passes) {
    const weights = ofPass.filter(({ from }) => from === 'disk');
    const bytes = weights.reduce((sum, move) => sum + move.bytes, 0);
    const causes = [...new Set(weights.map(({ cause }) => cause))].join(', ');
    console.log(`pass ${pass}: ${weights.length} moves, ${formatByteSize(bytes)} (${causes || 'none'})`);
  }

  // The ledger counted the same bytes: the trace is a view of it and no second count.
  const sum = (cause) =>
    moves.filter((move) => move.cause === cause).reduce((all, { bytes }) => all + bytes, 0);
  const { moved } = session.ledger.totals();
  const equal = Object.keys(moved).every((cause) => sum(cause) === moved[cause]);
  console.log(`the trace and the ledger ${equal ? 'agree' : 'DISAGREE'}`);
} finally {
  await session.close();
}

function groupByPass(records) {
  const passes = new Map();
  for (const record of records) passes.set(record.pass, [...(passes.get(record.pass) ?? []), record]);
  return passes;
}
