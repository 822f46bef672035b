// Acquisition benchmark: new tokens of an OPT-1.3B shape from disk, `packets` against `stream`, cold (the prepared file is
// dropped from the page cache before every token) and warm, interleaved AB BA, as ratios of medians and paired means;
// and stream's rate against a plain sequential read of the same file, measured in the same run.
// node bench/acquire.mjs [--json] [--model DIR] [--budget SIZE] [--pairs N] [--tokens N] [--threads N]
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
    budget: { type: 'string', default: '2000MB' },
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
await makeWhereAbsent(values.model);

const prompt = Array.from({ length: 16 }, (_, index) => 5 + ((index * 37) % 50_000));
const budgetBytes = parseByteSize(values.budget);

/** Milliseconds of each decode step of one arm, and what it moved; cold: every step begins with an empty page cache. */
async function trial(policy, cold) {
  const session = await openModel({
    model: values.model,
    policy,
    budgetBytes,
    threads: Number(values.threads),
    contextPositions: 64,
    prefillChunk: 16,
  });
  try {
    const { descriptor } = session.plan.prepared.weightsFile;
    if (!cold) await readThrough(session);
    const generation = session.generate([prompt], { maxNewTokens: tokens + 1, ignoreEos: true });
    for await (const _ of generation) if (cold) library.evict(descriptor);
    const { times, bytes, deviceReadBytes, requests } = generation.outcome;
    const readRate = await readThrough(session, cold);
    return {
      policy,
      regime: session.plan.placement.regime,
      // the first step still meets what prefill left in the cache
      stepMs: times.decodeStepNs.slice(1).map((ns) => Number(ns) / 1e6),
      movedBytes: bytes.moved['dense-weights'] + bytes.moved['packet-rows'] + bytes.moved['embedding-rows'],
      denseBytes: bytes.moved['dense-weights'],
      deviceReadBytes,
      decodeBytesPerSecond: bytes.moved['dense-weights'] / (Number(times.decodeNs) / 1e9),
      readBytesPerSecond: readRate,
      digest: requests[0].logitsDigests.at(-1),
    };
  } finally {
    await session.close();
  }
}

/** Reads half a gigabyte of the weights file in pieces of 8 MiB through the same transfer; bytes a second. */
async function readThrough(session, cold = false) {
  const { weightsFile } = session.plan.prepared;
  const pieceBytes = 8 << 20;
  const count = Math.min(64, Math.floor(weightsFile.byteLength / pieceBytes));
  const buffer = session.backend.allocate({ label: 'bench', cause: 'staging', byteLength: pieceBytes });
  if (cold) library.evict(weightsFile.descriptor);
  const began = process.hrtime.bigint();
  for (let piece = 0; piece < count; piece++) {
    const target = { buffer, byteOffset: 0, byteLength: pieceBytes };
    await session.backend.transfer([{ file: weightsFile, position: piece * pieceBytes, target }]);
  }
  const elapsedNs = Number(process.hrtime.bigint() - began);
  session.backend.release(buffer);
  return (count * pieceBytes) / (elapsedNs / 1e9);
}

const report = [];
for (const cold of [true, false]) {
  const stream = [];
  const packets = [];
  for (let pair = 0; pair < pairs; pair++) {
    const order = pair % 2 === 0 ? ['stream', 'packets'] : ['packets', 'stream'];
    for (const policy of order) (policy === 'stream' ? stream : packets).push(await trial(policy, cold));
  }
  if (new Set([...stream, ...packets].map(({ digest }) => digest)).size !== 1)
    throw new Error('arms differ in a logits digest');
  const stepOf = (result) => median(result.stepMs);
  report.push({
    reads: cold ? 'cold' : 'warm',
    regimes: [stream[0].regime, packets[0].regime],
    streamMsPerToken: median(stream.map(stepOf)),
    packetsMsPerToken: median(packets.map(stepOf)),
    pairedRatio: geometricMean(stream.map((result, pair) => stepOf(result) / stepOf(packets[pair]))),
    streamBytes: stream[0].movedBytes,
    packetsBytes: packets[0].movedBytes,
    streamDeviceBytes: median(stream.map((result) => result.deviceReadBytes ?? 0)),
    packetsDeviceBytes: median(packets.map((result) => result.deviceReadBytes ?? 0)),
    streamShareOfReadRate: median(
      stream.map((result) => result.decodeBytesPerSecond / result.readBytesPerSecond),
    ),
    readGBps: median(stream.map((result) => result.readBytesPerSecond)) / 1e9,
    digestsEqual: true,
  });
}
const conditions = {
  processor: cpus()[0].model,
  threads: Number(values.threads),
  budgetBytes,
  pairs,
  tokens,
};
if (values.json) process.stdout.write(`${JSON.stringify({ conditions, report }, null, 2)}\n`);
else {
  process.stdout.write(
    `OPT-1.3B shape, F16, 3.4 % active, budget ${budgetBytes} B, ${JSON.stringify(conditions)}\n`,
  );
  console.table(report);
}
