// Simulates the lab's intervals: coverage of bootstrap and Student t, and false alarms of A/A campaigns. Seeded.
// Usage: node scripts/lab-coverage.mjs [campaigns]
import { normalQuantile } from '../dist/base/normal.js';
import { uniform } from '../dist/base/philox.js';
import { balancedOrder } from '../dist/lab/schedule.js';
import { bootstrapMean } from '../dist/lab/statistics/bootstrap.js';
import { pairedEffect } from '../dist/lab/statistics/paired-effect.js';
import { studentQuantile } from '../dist/lab/statistics/student.js';

const campaigns = Number(process.argv[2] ?? 1000);
let draw = 0;
const normal = () => normalQuantile(Math.min(1 - 1e-9, Math.max(1e-9, uniform(20261130, 0, draw++))));

console.log(
  'pairs | bootstrap, plain | Student t, plain | bootstrap, order removed | Student t, order removed',
);
for (const pairs of [5, 6, 8, 10, 12, 16, 20, 30]) {
  let bootstrap = 0;
  let student = 0;
  for (let campaign = 0; campaign < campaigns; campaign++) {
    const values = Array.from({ length: pairs }, normal);
    const interval = bootstrapMean(values, 0.95, campaign);
    if (interval.low <= 0 && interval.high >= 0) bootstrap++;
    const mean = values.reduce((a, b) => a + b, 0) / pairs;
    const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (pairs - 1));
    if (Math.abs(mean) <= (studentQuantile(0.95, pairs - 1) * deviation) / Math.sqrt(pairs)) student++;
  }
  let removedBootstrap = 0;
  let removedStudent = 0;
  if (pairs % 2 === 0) {
    for (let campaign = 0; campaign < campaigns; campaign++) {
      const { interval, bootstrap: shown } = campaignEffect(pairs, campaign, 0.01, 0.005);
      if (interval.low <= 1 && interval.high >= 1) removedStudent++;
      if (shown.low <= 1 && shown.high >= 1) removedBootstrap++;
    }
  }
  const percent = (count) => `${((100 * count) / campaigns).toFixed(1)} %`;
  console.log(
    `${pairs} | ${percent(bootstrap)} | ${percent(student)} | ${pairs % 2 ? '-' : percent(removedBootstrap)} | ${pairs % 2 ? '-' : percent(removedStudent)}`,
  );
}

/** Identical arms with a bias of the second slot and noise a trial, both as shares. */
function campaignEffect(pairs, seed, slotBias, noise) {
  const blocks = Array.from({ length: pairs }, () => ({}));
  for (const { block, position, arm } of balancedOrder(2, pairs, seed)) {
    const time = 1e9 * (1 + slotBias * position) * Math.exp(noise * normal());
    blocks[block][arm] = { value: BigInt(Math.round(time)), position };
  }
  return pairedEffect(
    blocks.map(({ 0: a, 1: b }) => ({
      value: b.value,
      against: a.value,
      place: b.position,
      againstPlace: a.position,
    })),
    2,
    0.95,
    seed,
  );
}
