// Simulates the lab's intervals, seeded. Usage (after npm run build): node scripts/lab-coverage.mjs [coverage|stopping] [campaigns]
// coverage: of bootstrap and Student t. stopping: false alarms of identical arms at fixed and sequential numbers of pairs, and
// how soon a delay is found.
import { normalQuantile } from '../dist/base/normal.js';
import { uniform } from '../dist/base/philox.js';
import { balancedOrder } from '../dist/lab/schedule.js';
import { bootstrapMean } from '../dist/lab/statistics/bootstrap.js';
import { nominalConfidence, sequentialCriticalValues } from '../dist/lab/statistics/group-sequential.js';
import { pairedEffect } from '../dist/lab/statistics/paired-effect.js';
import { studentQuantile } from '../dist/lab/statistics/student.js';

const [what = 'coverage', count = '1000'] = process.argv.slice(2);
const campaigns = Number(count);
const seed = 20261130;
const percent = (hits) => `${((100 * hits) / campaigns).toFixed(1)} %`;
const covers = ({ low, high }, value) => low <= value && high >= value;
let draw = 0;
const inverse = () => normalQuantile(Math.min(1 - 1e-9, Math.max(1e-9, uniform(seed, 0, draw++))));
/** Box and Muller; one of the two, and much faster. */
const normal = () => {
  const radius = Math.sqrt(-2 * Math.log(1 - uniform(seed, 1, draw++)));
  return radius * Math.cos(2 * Math.PI * uniform(seed, 1, draw++));
};

if (what === 'coverage') coverage();
else if (what === 'stopping') stopping();
else throw new Error(`Cannot simulate "${what}": want coverage or stopping`);

/** Blocks of two arms of about a second: the second slot 1 % slower, with noise a trial, the second arm delayed by seconds. */
function campaignOf(pairs, orderSeed, { noise, normal: drawn, delay = 0 }) {
  const blocks = Array.from({ length: pairs }, () => ({}));
  for (const { block, position, arm } of balancedOrder(2, pairs, orderSeed)) {
    const time = 1e9 * (1 + 0.01 * position) * Math.exp(noise * drawn()) + (arm === 1 ? 1e9 * delay : 0);
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

function coverage() {
  console.log(
    '| pairs | bootstrap, plain | Student t, plain | bootstrap, order removed | Student t, order removed |',
  );
  console.log('|---|---|---|---|---|');
  for (const pairs of [5, 6, 8, 10, 12, 16, 20, 30]) {
    const hits = [0, 0, 0, 0];
    for (let campaign = 0; campaign < campaigns; campaign++) {
      const values = Array.from({ length: pairs }, inverse);
      if (covers(bootstrapMean(values, 0.95, campaign), 0)) hits[0]++;
      const mean = values.reduce((a, b) => a + b, 0) / pairs;
      const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (pairs - 1));
      if (Math.abs(mean) <= (studentQuantile(0.95, pairs - 1) * deviation) / Math.sqrt(pairs)) hits[1]++;
    }
    for (let campaign = 0; campaign < campaigns && pairs % 2 === 0; campaign++) {
      const { interval, bootstrap } = effectOf(
        campaignOf(pairs, campaign, { noise: 0.005, normal: inverse }),
        0.95,
        campaign,
      );
      if (covers(bootstrap, 1)) hits[2]++;
      if (covers(interval, 1)) hits[3]++;
    }
    const removed = pairs % 2 === 1 ? ['-', '-'] : hits.slice(2).map(percent);
    console.log(`| ${pairs} | ${hits.slice(0, 2).map(percent).join(' | ')} | ${removed.join(' | ')} |`);
  }
}

/** Log ratios in units of their standard deviation, order effect in them; a mean and its t, as pairedEffect has them in a balanced order. */
function stopping() {
  console.log(
    '| rule | false alarms of identical arms | 20 ms in 1 s found, 0.5 % of noise | 3 % of noise | pairs until then, mean |',
  );
  console.log('|---|---|---|---|---|');
  for (const [name, looks, spending] of [
    ['10 pairs', [10], 'obrien-fleming'],
    ['20 pairs', [20], 'obrien-fleming'],
    ['40 pairs', [40], 'obrien-fleming'],
    ["O'Brien-Fleming, looks at 10, 14, 20", [10, 14, 20], 'obrien-fleming'],
    ["O'Brien-Fleming, looks at 10, 20, 30, 40", [10, 20, 30, 40], 'obrien-fleming'],
    ['Pocock, looks at 10, 14, 20', [10, 14, 20], 'pocock'],
    ['Pocock, looks at 10, 20, 30, 40', [10, 20, 30, 40], 'pocock'],
  ]) {
    const criticals = sequentialCriticalValues(0.95, looks, spending).map((critical, index) =>
      studentQuantile(nominalConfidence(critical), looks[index] - 2),
    );
    // A log ratio of two trials has the noise of both
    const [same, quiet, loud] = [
      0,
      Math.log(1.02) / (0.005 * Math.SQRT2),
      Math.log(1.02) / (0.03 * Math.SQRT2),
    ].map((effect) => {
      let [alarms, pairs] = [0, 0];
      for (let campaign = 0; campaign < campaigns; campaign++) {
        const ratios = Array.from({ length: looks.at(-1) }, () => effect + normal());
        const stop = looks.findIndex(
          (look, index) => Math.abs(tOf(ratios.slice(0, look))) > criticals[index],
        );
        if (stop >= 0) alarms++;
        pairs += looks[stop < 0 ? looks.length - 1 : stop];
      }
      return { alarms, pairs: pairs / campaigns };
    });
    console.log(
      `| ${name} | ${percent(same.alarms)} | ${percent(quiet.alarms)} | ${percent(loud.alarms)} | ${quiet.pairs.toFixed(1)}, ${loud.pairs.toFixed(1)} |`,
    );
  }
}

/** The t of the mean of values in AB BA order, the order effect fitted and removed. */
function tOf(ratios) {
  const sign = (index) => (index % 2 === 0 ? -1 : 1);
  const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
  const order = ratios.reduce((sum, ratio, index) => sum + sign(index) * ratio, 0) / ratios.length;
  const squares = ratios.reduce((sum, ratio, index) => sum + (ratio - mean - sign(index) * order) ** 2, 0);
  return mean / Math.sqrt(squares / (ratios.length - 2) / ratios.length);
}
