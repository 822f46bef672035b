// Every way for rows to come, on an OPT-1.3B shape whose neurons are popular by Zipf's law (exponent 1, about half of a token's
// rows in common with the token before), from disk, cold and warm: bytes, milliseconds, and ratios against packets that
// keep no rows. Arms take turns; exact ones must agree in every logits digest.
// node bench/policies.mjs [--json] [--model DIR] [--shape NAME] [--budget SIZE] [--tokens N] [--rounds N] [--threads N]
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { parseByteSize } from '../dist/base/byte-size.js';
import { canEvict, runArm } from './support/arms.mjs';
import { makeWhereAbsent } from './support/checkpoint.mjs';
import { profileOf } from './support/profile.mjs';
import { median } from './support/statistics.mjs';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    model: { type: 'string', default: join(tmpdir(), 'waybill-bench-opt-1.3b-zipf') },
    shape: { type: 'string', default: 'opt-1.3b' },
    budget: { type: 'string', default: '2000MB' },
    tokens: { type: 'string', default: '11' },
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: String(availableParallelism()) },
  },
});
await makeWhereAbsent(values.model, values.shape, {
  popularity: { kind: 'zipf', exponent: 1 },
  positionShare: 0.55,
});
const base = {
  model: values.model,
  threads: Number(values.threads),
  budgetBytes: parseByteSize(values.budget),
};
const idsFrom = (first, count) =>
  Array.from({ length: count }, (_, index) => 5 + ((first + index * 37) % 300));

const { path: profile } = await profileOf(base, idsFrom(11, 64));
const arms = [
  { name: 'packets, none kept', options: { policy: 'packets' }, keepRows: false },
  { name: 'packets', options: { policy: 'packets' } },
  { name: 'packets-staged', options: { policy: 'packets-staged' } },
  { name: 'extents', options: { policy: 'extents' } },
  { name: 'retention lru:1024', options: { policy: 'retention', retain: 'lru:1024' } },
  { name: 'retention hot:auto', options: { policy: 'retention', retain: 'hot:auto', profile } },
  { name: 'forecast early', options: { policy: 'forecast', forecast: 'early' } },
  { name: 'forecast late', options: { policy: 'forecast', forecast: 'late' } },
  { name: 'stream', options: { policy: 'stream' } },
];
const tokens = Number(values.tokens);
const prompt = idsFrom(3, 32);
const report = [];
for (const cold of canEvict ? [true, false] : [false]) {
  const results = arms.map(() => []);
  for (let round = 0; round < Number(values.rounds); round++) {
    const order = [...arms.keys()];
    if (round % 2 === 1) order.reverse();
    for (const index of order) {
      const { name, options, keepRows } = arms[index];
      try {
        results[index].push(
          await runArm({ options: { ...base, ...options }, keepRows, cold, tokens, prompt }),
        );
      } catch (error) {
        if (error.code !== 'budget-too-small') throw error;
        process.stderr.write(`${name}: ${error.message}\n`);
      }
    }
  }
  const digests = new Set(results.flat().map(({ digest }) => digest));
  if (digests.size !== 1) throw new Error('arms differ in a logits digest');
  const control = results[0];
  for (const [index, list] of results.entries()) {
    if (list.length === 0) continue;
    const ms = median(list.map(({ msPerToken }) => msPerToken));
    const { regime, bytesPerToken, heldBytes, causes, rows } = list[0];
    report.push({
      reads: cold ? 'cold' : 'warm',
      policy: arms[index].name,
      regime,
      heldBytes,
      bytesPerToken,
      bytesRatio: Number((bytesPerToken / control[0].bytesPerToken).toFixed(3)),
      msPerToken: Number(ms.toFixed(2)),
      timeRatio: Number((ms / median(control.map(({ msPerToken }) => msPerToken))).toFixed(3)),
      deviceReadBytes: median(list.map(({ deviceReadBytes }) => deviceReadBytes ?? 0)),
      ...(values.json ? { causes, rows } : {}),
    });
  }
}
const conditions = { processor: cpus()[0].model, ...base, tokens, rounds: Number(values.rounds) };
if (values.json) process.stdout.write(`${JSON.stringify({ conditions, report }, null, 2)}\n`);
else {
  process.stdout.write(`${JSON.stringify(conditions)}\n`);
  console.table(report);
}
