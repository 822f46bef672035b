// A budget that does not suffice: node examples/budget-too-small.mjs [MODEL]
import { join } from 'node:path';
import { BudgetError, closePlan, planSession } from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-target');
const options = { model, policy: 'packets', contextPositions: 256 };

try {
  await planSession({ ...options, budgetBytes: 1_000_000 });
} catch (error) {
  if (!(error instanceof BudgetError)) throw error;
  // Refused before anything was allocated; the message lists every component, `data` holds the numbers.
  console.log(error.message);
  console.log(`code ${error.code}, exit code ${error.exitCode} where the command line meets it`);

  // The least is exact: it suffices, and one byte less would not.
  const least = Number(error.data.minimumBytes);
  const plan = await planSession({ ...options, budgetBytes: least });
  console.log(`with ${least} bytes: regime ${plan.placement.regime}, holds ${plan.placement.totalBytes}`);
  await closePlan(plan);
}
