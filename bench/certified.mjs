// Certificates benchmark: new tokens of an OPT-1.3B shape from disk inside a budget of half its bytes, `certified` against
// `packets`, whose first projections stream; cold (what is read is dropped from the page cache before every token) and
// warm, interleaved AB BA, as ratios of medians and paired means.
// node bench/certified.mjs [--json] [--model DIR] [--budget SIZE] [--low-bit FORMAT] [--pairs N] [--tokens N] [--threads N]
import { openModel } from '../dist/generate/session.js';
import { inTurns, openDiskBench, stepsOf } from './support/disk-arms.mjs';
import { median } from './support/statistics.mjs';

const bench = await openDiskBench({
  budget: '1316MB',
  shape: { type: 'string', default: 'opt-1.3b' },
  'low-bit': { type: 'string', default: 'int8' },
});
const { values, library, prompt } = bench;
const weightCauses = ['dense-weights', 'packet-rows', 'uncertain-rows', 'embedding-rows'];

/** Milliseconds of each decode step of one arm, and what it moved; cold: every step begins with an empty page cache. */
async function trial(policy, cold) {
  const session = await openModel(
    {
      ...bench.session,
      policy,
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
      for await (const _ of session.generate([prompt], bench.generation));
    }
    const before = session.source.stats();
    const generation = session.generate([prompt], bench.generation);
    for await (const _ of generation) if (cold) evict();
    const { bytes, deviceReadBytes, requests } = generation.outcome;
    const after = session.source.stats();
    const sum = (stats, key) => stats.layers.reduce((total, layer) => total + layer[key], 0);
    const judged = sum(after, 'judgedRows') - sum(before, 'judgedRows');
    return {
      regime: session.plan.placement.regime,
      stepMs: stepsOf(generation.outcome),
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
  const { results, regimes, msPerToken, pairedRatio, deviceBytes } = await inTurns(
    ['packets', 'certified'],
    bench.pairs,
    (policy) => trial(policy, cold),
  );
  const [packets, certified] = results;
  report.push({
    reads: cold ? 'cold' : 'warm',
    regimes,
    packetsMsPerToken: msPerToken[0],
    certifiedMsPerToken: msPerToken[1],
    pairedRatio,
    packetsBytes: packets[0].movedBytes,
    certifiedBytes: certified[0].movedBytes,
    certifiedMoved: certified[0].moved,
    packetsDeviceBytes: deviceBytes[0],
    certifiedDeviceBytes: deviceBytes[1],
    uncertainShare: certified[0].uncertainShare,
    certifiedRowWaitMs: median(certified.map(({ rowWaitMs }) => rowWaitMs)),
    certifiedStreamWaitMs: median(certified.map(({ streamWaitMs }) => streamWaitMs)),
    packetsStreamWaitMs: median(packets.map(({ streamWaitMs }) => streamWaitMs)),
    digestsEqual: true,
  });
}
const { shape, 'low-bit': lowBit } = values;
const conditions = { ...bench.conditions, shape, lowBit };
process.stdout.write(`${JSON.stringify({ conditions, report }, null, 2)}\n`);
