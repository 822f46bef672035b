// Products of the WebAssembly kernels against the read ceiling of the same run. Every round measures each thing once,
// one after the other, so that what else the machine does meets all of them; data rotates, or caches would flatter.
//   node bench/wasm-kernels.mjs [--threads N] [--rounds N] [--bytes N] [--json]
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import { openNative } from '../dist/backend/cpu/native-backend.js';
import { nativeStatus } from '../dist/backend/cpu/native-status.js';
import { encodeProgram, wordsPerOp } from '../dist/backend/cpu/program.js';
import { openWasm } from '../dist/backend/cpu/wasm-backend.js';

const { values: flags } = parseArgs({
  options: {
    threads: { type: 'string', default: String(availableParallelism()) },
    rounds: { type: 'string', default: '12' },
    bytes: { type: 'string', default: String(2 ** 31) },
    rows: { type: 'string', default: '512' },
    json: { type: 'boolean', default: false },
  },
});
const threads = Number(flags.threads);
const rounds = Number(flags.rounds);
const rows = Number(flags.rows);
const inputs = 4096;
const outputs = 4096;
const matrixBytes = inputs * outputs * 4;
const matrixCount = Math.floor(Number(flags.bytes) / matrixBytes);
const readCeilingOpcode = 100;

const backend = await openWasm({ threads });
const opened = [backend];
const whole = (label, byteLength) => {
  const buffer = backend.allocate({ label, cause: 'dense-weights', byteLength });
  return { buffer, byteOffset: 0, byteLength };
};
const matrices = Array.from({ length: matrixCount }, (_, index) => whole(`matrix ${index}`, matrixBytes));
const x = whole('x', rows * inputs * 4);
const out = whole('out', rows * outputs * 4);

// Random bits that are ordinary numbers both as F32 and as F16: neither subnormal nor infinite, which take longer.
const block = new Uint32Array(2 ** 20);
let state = 1;
for (let index = 0; index < block.length; index++) {
  state = (Math.imul(state, 1664525) + 1013904223) | 0;
  block[index] = (state & 0x8fff8fff) | 0x30002000;
}
const blockBytes = new Uint8Array(block.buffer);
for (const span of [...matrices, x]) {
  for (let at = 0; at < span.byteLength; at += blockBytes.byteLength) {
    const byteLength = Math.min(blockBytes.byteLength, span.byteLength - at);
    backend.write({ buffer: span.buffer, byteOffset: at, byteLength }, blockBytes.subarray(0, byteLength));
  }
}

function product(matrix, type, layout, itsRows) {
  return {
    kind: 'linear',
    rows: itsRows,
    x,
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix: { span: matrix, type, layout, rowStride: layout === 'input-major' ? outputs : inputs },
    out,
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: null,
    residual: null,
  };
}

let turn = 0;
const next = () => matrices[turn++ % matrixCount];
const perRun = Math.max(1, Math.min(4, matrixCount >> 1));

function ceilingProgram() {
  const words = new Float64Array(perRun * wordsPerOp);
  for (let op = 0; op < perRun; op++) {
    words.set([readCeilingOpcode, next().buffer.address, matrixBytes], op * wordsPerOp);
  }
  return words;
}

const vectorRun = (type, layout) => {
  const bytes = type === 'f32' ? matrixBytes : matrixBytes / 2;
  return {
    bytes: perRun * bytes,
    run: () =>
      backend.threads.run(
        encodeProgram(Array.from({ length: perRun }, () => product(next(), type, layout, 1))),
      ),
  };
};
const productRun = (type, layout) => ({
  flops: 2 * rows * inputs * outputs,
  run: () => backend.threads.run(encodeProgram([product(next(), type, layout, rows)])),
});

const measures = {
  'read ceiling, wasm': { bytes: perRun * matrixBytes, run: () => backend.threads.run(ceilingProgram()) },
  'f32 vector, input-major': vectorRun('f32', 'input-major'),
  'f32 vector, output-major': vectorRun('f32', 'output-major'),
  'f16 vector, input-major': vectorRun('f16', 'input-major'),
  'f16 vector, output-major': vectorRun('f16', 'output-major'),
  'bf16 vector, input-major': vectorRun('bf16', 'input-major'),
};
if (nativeStatus().available) {
  const native = await openNative({ threads });
  opened.push(native);
  const buffer = native.allocate({
    label: 'ceiling',
    cause: 'dense-weights',
    byteLength: matrixCount * matrixBytes,
  });
  const byteLength = perRun * matrixBytes;
  const pieces = Math.floor(buffer.byteLength / byteLength);
  for (let piece = 0; piece < pieces; piece++) {
    for (let at = 0; at < byteLength; at += blockBytes.byteLength) {
      const byteOffset = piece * byteLength + at;
      native.write({ buffer, byteOffset, byteLength: blockBytes.byteLength }, blockBytes);
    }
  }
  let piece = 0;
  measures['read ceiling, native'] = {
    bytes: byteLength,
    run: () =>
      native.sum({ buffer, byteOffset: (piece++ % pieces) * byteLength, byteLength }, byteLength / 4),
  };
}
measures[`f32 product, ${rows} rows`] = productRun('f32', 'input-major');
measures[`f16 product, ${rows} rows`] = productRun('f16', 'input-major');

const seconds = Object.fromEntries(Object.keys(measures).map((name) => [name, []]));
for (let round = -2; round < rounds; round++) {
  for (const [name, { run }] of Object.entries(measures)) {
    const start = process.hrtime.bigint();
    await run();
    const elapsed = Number(process.hrtime.bigint() - start) / 1e9;
    if (round >= 0) seconds[name].push(elapsed); // the first two rounds compile
  }
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const rate = (name) => measures[name].bytes / median(seconds[name]) / 1e9;
const ceiling = Math.max(
  ...Object.keys(measures)
    .filter((name) => name.startsWith('read ceiling'))
    .map(rate),
);
const results = Object.entries(measures).map(([name, { bytes, flops }]) => ({
  name,
  gigabytesPerSecond: bytes === undefined ? null : rate(name),
  bestGigabytesPerSecond: bytes === undefined ? null : bytes / Math.min(...seconds[name]) / 1e9,
  fractionOfCeiling: bytes === undefined ? null : rate(name) / ceiling,
  gigaflops: flops === undefined ? null : flops / median(seconds[name]) / 1e9,
  bestGigaflops: flops === undefined ? null : flops / Math.min(...seconds[name]) / 1e9,
}));

if (flags.json) {
  console.log(
    JSON.stringify({ threads, rounds, rotatedBytes: matrixCount * matrixBytes, inputs, outputs, results }),
  );
} else {
  const table = new Table({ head: [`${threads} threads`, 'GB/s', 'best', 'of ceiling', 'GFLOP/s', 'best'] });
  const shown = (value) => (value === null ? '' : value.toFixed(2));
  for (const one of results) {
    table.push([
      one.name,
      shown(one.gigabytesPerSecond),
      shown(one.bestGigabytesPerSecond),
      shown(one.fractionOfCeiling),
      shown(one.gigaflops),
      shown(one.bestGigaflops),
    ]);
  }
  console.log(table.toString());
}
await Promise.all(opened.map((one) => one.close()));
