// Kernel benchmark: matrix-vector and matrix-matrix products of the native library against a read ceiling (every byte
// loaded and added, all threads) that is measured in the same run, interleaved, over data that rotate through 2 GiB.
// node bench/kernels.mjs [--json] [--threads N] [--set NAME] [--pairs N] [--bytes N] [--only TEXT[,TEXT]]
import { availableParallelism, cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { openNative } from '../dist/backend/cpu/native-backend.js';
import { median } from './support/statistics.mjs';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    threads: { type: 'string', default: String(availableParallelism()) },
    set: { type: 'string' },
    pairs: { type: 'string', default: '9' },
    bytes: { type: 'string', default: String(2 ** 31) },
    only: { type: 'string', default: '' },
  },
});
const pairs = Number(values.pairs);
const arenaBytes = Number(values.bytes);
const elementBytes = { f32: 4, f16: 2, bf16: 2 };

const backend = await openNative({
  threads: Number(values.threads),
  ...(values.set === undefined ? {} : { instructionSet: values.set }),
});
const spanOf = (buffer, byteOffset = 0, byteLength = buffer.byteLength) => ({
  buffer,
  byteOffset,
  byteLength,
});
const allocate = (label, cause, byteLength) => backend.allocate({ label, cause, byteLength });

const arena = allocate('weights', 'dense-weights', arenaBytes);
fillArena();
const inputsMost = 8192;
const outputsMost = 8192;
const rowsMost = 512;
const x = allocate('x', 'activations', rowsMost * inputsMost * 4);
const out = allocate('out', 'activations', rowsMost * outputsMost * 4);
writeRandomInputs();

// Small finite numbers in every stored type: F16 0x2c00 to 0x2fff, read as F32 or BF16 they are tiny but normal.
function fillArena() {
  const part = new Uint16Array(1 << 22);
  let state = 1;
  for (let i = 0; i < part.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    part[i] = 0x2c00 | ((state >>> 16) & 0x83ff);
  }
  const bytes = new Uint8Array(part.buffer);
  for (let at = 0; at < arenaBytes; at += bytes.byteLength) {
    const length = Math.min(bytes.byteLength, arenaBytes - at);
    backend.write(spanOf(arena, at, length), bytes.subarray(0, length));
  }
}

function writeRandomInputs() {
  const numbers = new Float32Array(rowsMost * inputsMost);
  let state = 7;
  for (let i = 0; i < numbers.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    numbers[i] = state / 2 ** 32 - 0.5;
  }
  backend.write(spanOf(x), new Uint8Array(numbers.buffer));
}

let cursor = 0;
/** The next `byteLength` bytes of the arena, so that nothing is in a cache when its turn comes again. */
function nextWeights(byteLength) {
  if (cursor + byteLength > arenaBytes) cursor = 0;
  const span = spanOf(arena, cursor, byteLength);
  cursor += byteLength;
  return span;
}

function linearOp(kase) {
  const { rows, inputs, outputs, type, layout } = kase;
  const span = nextWeights(inputs * outputs * elementBytes[type]);
  return {
    label: 'linear',
    op: {
      kind: 'linear',
      rows,
      x: spanOf(x),
      xStride: inputs,
      inputBegin: 0,
      inputEnd: inputs,
      outputs,
      matrix: { span, type, layout, rowStride: layout === 'input-major' ? outputs : inputs },
      out: spanOf(out),
      outStride: outputs,
      outOffset: 0,
      continues: false,
      bias: null,
      residual: null,
    },
  };
}

function activeList(width, share) {
  const list = new Uint32Array(1 + width);
  let state = 11;
  let count = 0;
  for (let i = 0; i < width; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    if (state / 2 ** 32 < share) list[++count] = i;
  }
  list[0] = count;
  const buffer = allocate('active', 'indices', list.byteLength);
  backend.write(spanOf(buffer), new Uint8Array(list.buffer));
  return { buffer, count };
}

function activeOp(kase) {
  const { rows, inputs, outputs, type, active } = kase;
  const span = nextWeights(inputs * outputs * elementBytes[type]);
  return {
    label: 'active-inputs',
    op: {
      kind: 'active-inputs',
      rows,
      x: spanOf(x),
      xStride: inputs,
      active: spanOf(active.buffer),
      listBegin: 0,
      listEnd: -1,
      slots: null,
      outputs,
      matrix: { span, type, layout: 'input-major', rowStride: outputs },
      out: spanOf(out),
      continues: false,
      bias: null,
      residual: null,
    },
  };
}

async function elapsed(work) {
  const start = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - start);
}

/** One case against the ceiling, pair by pair, the order of each pair turned round each time. */
async function measure(kase) {
  const matrixBytes = kase.inputs * kase.outputs * elementBytes[kase.type];
  const usedBytes =
    kase.active === undefined ? matrixBytes : kase.active.count * kase.outputs * elementBytes[kase.type];
  const ops = Math.max(1, Math.round(kase.bytesPerSample / matrixBytes));
  const make = kase.active === undefined ? linearOp : activeOp;
  const program = () => Array.from({ length: ops }, () => make(kase));
  const ceilingBytes = Math.floor(kase.bytesPerSample / 2 ** 18) * 2 ** 18;
  const ceiling = () => elapsed(() => backend.sum(nextWeights(ceilingBytes), ceilingBytes / 4));
  const kernel = () => {
    const submitted = program();
    return elapsed(() => backend.submit(submitted));
  };
  await kernel();
  const samples = [];
  for (let pair = 0; pair < pairs; pair++) {
    const sample = {};
    const order = pair % 2 === 0 ? ['ceiling', 'kernel'] : ['kernel', 'ceiling'];
    for (const which of order) sample[which] = await (which === 'ceiling' ? ceiling() : kernel());
    samples.push({
      ceilingGBs: ceilingBytes / sample.ceiling,
      kernelGBs: (ops * usedBytes) / sample.kernel,
      gflops: (2 * kase.rows * ops * (usedBytes / elementBytes[kase.type])) / sample.kernel,
    });
  }
  return {
    name: kase.name,
    rows: kase.rows,
    ceilingGBs: median(samples.map((s) => s.ceilingGBs)),
    kernelGBs: median(samples.map((s) => s.kernelGBs)),
    share: median(samples.map((s) => s.kernelGBs / s.ceilingGBs)),
    gflops: median(samples.map((s) => s.gflops)),
    pairs,
  };
}

const sample = 2 ** 28;
const cases = [];
for (const type of ['f32', 'f16', 'bf16']) {
  for (const layout of ['input-major', 'output-major']) {
    cases.push({
      name: `${type} ${layout}`,
      rows: 1,
      inputs: 2048,
      outputs: 8192,
      type,
      layout,
      bytesPerSample: sample,
    });
  }
}
cases.push({
  name: 'f16 input-major narrow',
  rows: 1,
  inputs: 8192,
  outputs: 2048,
  type: 'f16',
  layout: 'input-major',
  bytesPerSample: sample,
});
for (const share of [0.1, 0.034]) {
  const active = activeList(8192, share);
  cases.push({
    name: `f16 active rows ${Number((share * 100).toFixed(1))} %`,
    rows: 1,
    inputs: 8192,
    outputs: 2048,
    type: 'f16',
    active,
    bytesPerSample: sample * 4,
  });
}
for (const rows of [2, 4, 8, 16, 64]) {
  cases.push({
    name: `f16 input-major x ${rows}`,
    rows,
    inputs: 2048,
    outputs: 8192,
    type: 'f16',
    layout: 'input-major',
    bytesPerSample: sample / 2,
  });
}
cases.push({
  name: 'f16 output-major x 4',
  rows: 4,
  inputs: 2048,
  outputs: 8192,
  type: 'f16',
  layout: 'output-major',
  bytesPerSample: sample / 2,
});
for (const type of ['f32', 'f16']) {
  for (const layout of ['input-major', 'output-major']) {
    cases.push({
      name: `${type} ${layout} x 512`,
      rows: 512,
      inputs: 2048,
      outputs: 2048,
      type,
      layout,
      bytesPerSample: 2 ** 25,
    });
  }
}

const results = [];
for (const kase of cases) {
  if (!values.only.split(',').some((part) => kase.name.includes(part))) continue;
  const result = await measure(kase);
  results.push(result);
  if (!values.json) {
    if (results.length === 1)
      console.log(`${'product'.padEnd(30)} ceiling GB/s  kernel GB/s  share  GFLOP/s`);
    console.log(
      `${result.name.padEnd(30)} ${result.ceilingGBs.toFixed(1).padStart(12)} ${result.kernelGBs.toFixed(1).padStart(12)} ${result.share.toFixed(2).padStart(6)} ${result.gflops.toFixed(1).padStart(8)}`,
    );
  }
}
if (values.json) {
  console.log(
    JSON.stringify(
      { kernels: backend.info.kernels, threads: backend.info.threads, processor: cpus()[0]?.model, results },
      null,
      2,
    ),
  );
}
await backend.close();
