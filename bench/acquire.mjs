// Acquisition benchmark: new tokens of an OPT-1.3B shape from disk, `packets` against `stream`, cold (the prepared file is
// dropped from the page cache before every token) and warm, interleaved AB BA, as ratios of medians and paired means;
// and stream's rate against a plain sequential read of the same file, measured in the same run.
// node bench/acquire.mjs [--json] [--model DIR] [--budget SIZE] [--pairs N] [--tokens N] [--threads N]
import { openModel } from '../dist/generate/session.js';
import { inTurns, openDiskBench, stepsOf } from './support/disk-arms.mjs';
import { median } from './support/statistics.mjs';

const bench = await openDiskBench({ budget: '2000MB' });
const { values, library, prompt } = bench;

/** Milliseconds of each decode step of one arm, and what it moved; cold: every step begins with an empty page cache. */
async function trial(policy, cold) {
  const session = await openModel({ ...bench.session, policy });
  try {
    const { descriptor } = session.plan.prepared.weightsFile;
    if (!cold) await readThrough(session);
    const generation = session.generate([prompt], bench.generation);
    for await (const _ of generation) if (cold) library.evict(descriptor);
    const { times, bytes, deviceReadBytes, requests } = generation.outcome;
    const readRate = await readThrough(session, cold);
    return {
      regime: session.plan.placement.regime,
      stepMs: stepsOf(generation.outcome),
      movedBytes: bytes.moved['dense-weights'] + bytes.moved['packet-rows'] + bytes.moved['embedding-rows'],
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
  const { results, regimes, msPerToken, pairedRatio, deviceBytes } = await inTurns(
    ['stream', 'packets'],
    bench.pairs,
    (policy) => trial(policy, cold),
  );
  const [stream, packets] = results;
  report.push({
    reads: cold ? 'cold' : 'warm',
    regimes,
    streamMsPerToken: msPerToken[0],
    packetsMsPerToken: msPerToken[1],
    pairedRatio,
    streamBytes: stream[0].movedBytes,
    packetsBytes: packets[0].movedBytes,
    streamDeviceBytes: deviceBytes[0],
    packetsDeviceBytes: deviceBytes[1],
    streamShareOfReadRate: median(
      stream.map((result) => result.decodeBytesPerSecond / result.readBytesPerSecond),
    ),
    readGBps: median(stream.map((result) => result.readBytesPerSecond)) / 1e9,
    digestsEqual: true,
  });
}
const { conditions } = bench;
if (values.json) process.stdout.write(`${JSON.stringify({ conditions, report }, null, 2)}\n`);
else {
  process.stdout.write(
    `OPT-1.3B shape, F16, 3.4 % active, budget ${bench.budgetBytes} B, ${JSON.stringify(conditions)}\n`,
  );
  console.table(report);
}
