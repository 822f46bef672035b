// Predicted against measured milliseconds a token, of every arm that fits, warm: rates as a run measures them when it is
// planned, then the median step of each arm, arms taking turns. Aim: within 25 % on a CPU.
// node bench/planner.mjs [--json] [--model DIR] [--shape NAME] [--budget SIZE] [--tokens N] [--rounds N] [--threads N]
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { policyNames } from '../dist/acquire/policy.js';
import { parseByteSize } from '../dist/base/byte-size.js';
import { measureRates } from '../dist/generate/measure-rates.js';
import { closePlan, planSession } from '../dist/generate/session.js';
import { runArm } from './support/arms.mjs';
import { makeWhereAbsent } from './support/checkpoint.mjs';
import { profileOf } from './support/profile.mjs';
import { median } from './support/statistics.mjs';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    model: { type: 'string', default: join(tmpdir(), 'waybill-bench-opt-1.3b') },
    shape: { type: 'string', default: 'opt-1.3b' },
    budget: { type: 'string', default: '2000MB' },
    tokens: { type: 'string', default: '11' },
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: String(availableParallelism()) },
  },
});
await makeWhereAbsent(values.model, values.shape);
const threads = Number(values.threads);
const budgetBytes = parseByteSize(values.budget);
const idsFrom = (first, count) =>
  Array.from({ length: count }, (_, index) => 5 + ((first + index * 37) % 300));
const prompt = idsFrom(0, 16);
const bounded = policyNames.filter((policy) => !policy.startsWith('resident'));
const arms = [
  ...policyNames
    .filter((policy) => policy.startsWith('resident'))
    .map((policy) => ({ policy, budgetBytes: Infinity })),
  ...bounded.map((policy) => ({ policy, budgetBytes })),
];

async function ratesNow() {
  const plan = await planSession({
    model: values.model,
    policy: 'phase',
    budgetBytes,
    threads,
    contextPositions: 64,
  });
  try {
    const context = prompt.length + Math.floor(Number(values.tokens) / 2);
    return await measureRates(plan.prepared, plan.backend, {
      budgetBytes,
      activeShare,
      context,
      quantised: true,
    });
  } finally {
    await closePlan(plan);
  }
}

// A plan knows of activity what a profile says.
const { path: profile, activeShare } = await profileOf(
  { model: values.model, threads, budgetBytes },
  idsFrom(11, 64),
);

// Reads the whole file once, so that rates are those of the page cache, as the measured steps are.
await runArm({
  options: { model: values.model, threads, policy: 'resident' },
  cold: false,
  tokens: 2,
  prompt,
});

const results = arms.map(() => []);
for (let round = 0; round < Number(values.rounds); round++) {
  const rates = await ratesNow();
  process.stderr.write(`${JSON.stringify(rates)}\n`);
  for (const [index, arm] of arms.entries()) {
    try {
      const options = { model: values.model, threads, profile, ...arm };
      results[index].push(
        await runArm({ options, cold: false, tokens: Number(values.tokens), prompt, rates }),
      );
    } catch (error) {
      if (error.code !== 'budget-too-small') throw error;
    }
  }
}
const report = results
  .filter((list) => list.length > 0)
  .map((list) => {
    const predicted = median(list.map(({ price }) => price.totalMs));
    const measured = median(list.map(({ msPerToken }) => msPerToken));
    const { policy, regime, price } = list[0];
    const round = (ms) => Number(ms.toFixed(2));
    return {
      policy,
      regime,
      predictedMs: round(predicted),
      measuredMs: round(measured),
      error: `${((100 * (predicted - measured)) / measured).toFixed(0)} %`,
      within25: Math.abs(predicted - measured) <= measured / 4,
      ...Object.fromEntries(Object.entries(price).map(([name, ms]) => [name, round(ms)])),
    };
  });
const conditions = { processor: cpus()[0].model, threads, budgetBytes, rounds: Number(values.rounds) };
if (values.json) process.stdout.write(`${JSON.stringify({ conditions, report }, null, 2)}\n`);
else {
  process.stdout.write(`${JSON.stringify(conditions)}\n`);
  console.table(report);
}
