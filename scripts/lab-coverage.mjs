// Simulates the lab's intervals: coverage of bootstrap and Student t, false alarms of A/A campaigns at fixed and sequential
// numbers of pairs, and how often a delay is found. Seeded. Usage (after npm run build): node scripts/lab-coverage.mjs [campaigns]
import { uniform } from '../dist/base/philox.js';
import { balancedOrder } from '../dist/lab/schedule.js';
import { bootstrapMean } from '../dist/lab/statistics/bootstrap.js';
import { nominalConfidence, sequentialCriticalValues } from '../dist/lab/statistics/group-sequential.js';
import { pairedEffect } from '../dist/lab/statistics/paired-effect.js';
import { studentQuantile } from '../dist/lab/statistics/student.js';

const campaigns = Number(process.argv[2] ?? 1000);
const seed = 20261130;
let draw = 0;
/** Box and Muller; one of the two. */
const normal = () => {
  const radius = Math.sqrt(-2 * Math.log(1 - uniform(seed, 0, draw++)));
  return radius * Math.cos(2 * Math.PI * uniform(seed, 0, draw++));
};
const percent = (count) => `${((100 * count) / campaigns).toFixed(1)} %`;
const covers = ({ low, high }, value) => low <= value && high >= value;

console.log(
  '| pairs | bootstrap, plain | Student t, plain | bootstrap, order removed | Student t, order removed |',
);
console.log('|---|---|---|---|---|');
for (const pairs of [5, 6, 8, 10, 12, 16, 20, 30]) {
  const hits = [0, 0, 0, 0];
  for (let campaign = 0; campaign < campaigns; campaign++) {
    const values = Array.from({ length: pairs }, normal);
    if (covers(bootstrapMean(values, 0.95, campaign), 0)) hits[0]++;
    const mean = values.reduce((a, b) => a + b, 0) / pairs;
    const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (pairs - 1));
    if (Math.abs(mean) <= (studentQuantile(0.95, pairs - 1) * deviation) / Math.sqrt(pairs)) hits[1]++;
    if (pairs % 2 === 1) continue;
    const { interval, bootstrap } = effectOf(campaignOf(pairs, campaign, {}), 0.95, campaign);
    if (covers(bootstrap, 1)) hits[2]++;
    if (covers(interval, 1)) hits[3]++;
  }
  const removed = pairs % 2 === 1 ? ['-', '-'] : hits.slice(2).map(percent);
  console.log(`| ${pairs} | ${hits.slice(0, 2).map(percent).join(' | ')} | ${removed.join(' | ')} |`);
}

console.log(
  '\n| rule | false alarms of identical arms | ends early with a 20 ms delay in 1 s | pairs then, mean | delay found |',
);
console.log('|---|---|---|---|---|');
for (const [name, looks, spending] of [
  ['10 pairs', [10], 'obrien-fleming'],
  ['20 pairs', [20], 'obrien-fleming'],
  ["O'Brien-Fleming spending, looks at 10, 14, 20", [10, 14, 20], 'obrien-fleming'],
  ["O'Brien-Fleming spending, looks at 10, 20, 30, 40", [10, 20, 30, 40], 'obrien-fleming'],
  ['Pocock spending, looks at 10, 14, 20', [10, 14, 20], 'pocock'],
  ['Pocock spending, looks at 10, 20, 30, 40', [10, 20, 30, 40], 'pocock'],
]) {
  const levels = sequentialCriticalValues(0.95, looks, spending).map(nominalConfidence);
  const [same, slower] = [{}, { delay: 0.02 }].map((changes) => {
    let [alarms, early, pairs] = [0, 0, 0];
    for (let campaign = 0; campaign < campaigns; campaign++) {
      const blocks = campaignOf(looks.at(-1), campaign, changes);
      const stop = looks.findIndex((look, index) => {
        const { interval } = effectOf(blocks.slice(0, look), levels[index], null);
        return !covers(interval, 1);
      });
      if (stop >= 0) alarms++;
      if (stop >= 0 && stop < looks.length - 1) early++;
      pairs += looks[stop < 0 ? looks.length - 1 : stop];
    }
    return { alarms, early, pairs: pairs / campaigns };
  });
  console.log(
    `| ${name} | ${percent(same.alarms)} | ${percent(slower.early)} | ${slower.pairs.toFixed(1)} | ${percent(slower.alarms)} |`,
  );
}

/** Blocks of two arms of about a second: the second slot 1 % slower, 0.5 % of noise a trial (3 % where a delay is to be found). */
function campaignOf(pairs, orderSeed, { delay = 0 }) {
  const blocks = Array.from({ length: pairs }, () => ({}));
  const noise = delay > 0 ? 0.03 : 0.005;
  for (const { block, position, arm } of balancedOrder(2, pairs, orderSeed)) {
    const time = 1e9 * (1 + 0.01 * position) * Math.exp(noise * normal()) + (arm === 1 ? 1e9 * delay : 0);
    blocks[block][arm] = { value: BigInt(Math.round(time)), position };
  }
  return blocks;
}

function effectOf(blocks, confidence, bootstrapSeed) {
  const pairs = blocks.map(({ 0: a, 1: b }) => ({
    value: b.value,
    against: a.value,
    place: b.position,
    againstPlace: a.position,
  }));
  return pairedEffect(pairs, 2, confidence, bootstrapSeed);
}
