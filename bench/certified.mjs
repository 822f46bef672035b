// Certificates benchmark: new tokens of an OPT-1.3B shape from disk inside a budget of half its bytes, `certified` against
// `packets`, whose first projections stream; cold (what is read is dropped from the page cache before every token) and
// warm, interleaved AB BA, as ratios of medians and paired means.
// node bench/certified.mjs [--json] [--model DIR] [--budget SIZE] [--low-bit FORMAT] [--pairs N] [--tokens N] [--threads N]
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { loadNative } from '../dist/backend/cpu/native-status.js';
import { parseByteSize } from '../dist/base/byte-size.js';
import { openModel } from '../dist/generate/session.js';
import { makeWhereAbsent } from './support/checkpoint.mjs';
import { geometricMean, median } from './support/statistics.mjs';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    model: { type: 'string', default: join(tmpdir(), 'waybill-bench-opt-1.3b') },
    shape: { type: 'string', default: 'opt-1.3b' },
    budget: { type: 'string', default: '1316MB' },
    'low-bit': { type: 'string', default: 'int8' },
    pairs: { type: 'string', default: '6' },
    tokens: { type: 'string', default: '6' },
    threads: { type: 'string', default: String(availableParallelism()) },
  },
});
const pairs = Number(values.pairs);
const tokens = Number(values.tokens);
const { library } = loadNative();
if (library === null) {
  process.stderr.write(
    'Not run: cold reads need the native library, which alone can drop pages from the cache\n',
  );
  process.exit(0);
}
await makeWhereAbsent(values.model, values.shape);

const prompt = Array.from({ length: 16 }, (_, index) => 5 + ((index * 37) % 50_000));
const budgetBytes = parseByteSize(values.budget);
const weightCauses = ['dense-weights', 'packet-rows', 'uncertain-rows', 'embedding-rows'];

/** Milliseconds of each decode step of one arm, and what it moved; cold: every step begins with an empty page cache. */
async function trial(policy, cold) {
  const session = await openModel(
    {
      model: values.model,
      policy,
      budgetBytes,
      threads: Number(values.threads),
      contextPositions: 64,
      prefillChunk: 16,
      ...(policy === 'certified' ? { lowBit: values['low-bit'] } : {}),
    },
    { onProgress: (label, done, total) => done === total && process.stderr.write(`${label}\n`) },
  );
  try {
    const files = [session.plan.prepared.weightsFile, session.lowBit?.rowsFile].filter(Boolean);
    const evict = () => {
      for (const { descriptor } of files) library.evict(descriptor);
    };
    if (!cold) {
      // Once through, so that the rows which the run needs are in the cache.
      for await (const _ of session.generate([prompt], { maxNewTokens: tokens + 1, ignoreEos: true }));
    }
    const before = session.source.stats();
    const generation = session.generate([prompt], { maxNewTokens: tokens + 1, ignoreEos: true });
    for await (const _ of generation) if (cold) evict();
    const { times, bytes, deviceReadBytes, requests } = generation.outcome;
    const after = session.source.stats();
    const sum = (stats, key) => stats.layers.reduce((total, layer) => total + layer[key], 0);
    const judged = sum(after, 'judgedRows') - sum(before, 'judgedRows');
    return {
      policy,
      regime: session.plan.placement.regime,
      // the first step still meets what prefill left in the cache
      stepMs: times.decodeStepNs.slice(1).map((ns) => Number(ns) / 1e6),
      movedBytes: weightCauses.reduce((total, cause) => total + bytes.moved[cause], 0),
      moved: Object.fromEntries(weightCauses.map((cause) => [cause, bytes.moved[cause]])),
      deviceReadBytes,
      expectedBytes: session.plan.placement.moved.expectedBytes,
      uncertainShare:
        judged === 0 ? null : (sum(after, 'uncertainRows') - sum(before, 'uncertainRows')) / judged,
      rowWaitMs: Number(after.rowWaitNs - before.rowWaitNs) / 1e6,
      streamWaitMs: Number(after.streamWaitNs - before.streamWaitNs) / 1e6,
      digest: requests[0].logitsDigests.at(-1),
    };
  } finally {
    await session.close();
  }
}

const report = [];
for (const cold of [true, false]) {
  const arms = { packets: [], certified: [] };
  for (let pair = 0; pair < pairs; pair++) {
    const order = pair % 2 === 0 ? ['packets', 'certified'] : ['certified', 'packets'];
    for (const policy of order) arms[policy].push(await trial(policy, cold));
  }
  const { packets, certified } = arms;
  if (new Set([...packets, ...certified].map(({ digest }) => digest)).size !== 1)
    throw new Error('arms differ in a logits digest');
  const stepOf = (result) => median(result.stepMs);
  report.push({
    reads: cold ? 'cold' : 'warm',
    regimes: [packets[0].regime, certified[0].regime],
    packetsMsPerToken: median(packets.map(stepOf)),
    certifiedMsPerToken: median(certified.map(stepOf)),
    pairedRatio: geometricMean(packets.map((result, pair) => stepOf(result) / stepOf(certified[pair]))),
    packetsBytes: packets[0].movedBytes,
    certifiedBytes: certified[0].movedBytes,
    certifiedMoved: certified[0].moved,
    packetsDeviceBytes: median(packets.map((result) => result.deviceReadBytes ?? 0)),
    certifiedDeviceBytes: median(certified.map((result) => result.deviceReadBytes ?? 0)),
    uncertainShare: certified[0].uncertainShare,
    certifiedRowWaitMs: median(certified.map(({ rowWaitMs }) => rowWaitMs)),
    certifiedStreamWaitMs: median(certified.map(({ streamWaitMs }) => streamWaitMs)),
    packetsStreamWaitMs: median(packets.map(({ streamWaitMs }) => streamWaitMs)),
    digestsEqual: true,
  });
}
const conditions = {
  processor: cpus()[0].model,
  shape: values.shape,
  lowBit: values['low-bit'],
  threads: Number(values.threads),
  budgetBytes,
  pairs,
  tokens,
};
process.stdout.write(`${JSON.stringify({ conditions, report }, null, 2)}\n`);
