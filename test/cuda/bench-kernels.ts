import { open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TransferFile } from '../../src/backend/backend.js';
import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import type { LinearOp, Op, PlacedOp } from '../../src/backend/ops.js';
import { type Span, spanOf, subspan } from '../../src/memory/buffers.js';

/** One kernel's time and what it moved. */
export interface KernelTime {
  readonly name: string;
  readonly microseconds: number;
  readonly gigabytesPerSecond: number;
}

const repeats = 7;

/** OPT-2.7B: every weight kernel rotates over enough matrices to pass the second-level cache. */
const shape = { hidden: 2560, ffn: 10_240, heads: 32, headDim: 80, vocabulary: 50_272, capacity: 640 };

/** Times kernels one by one, in graphs of many launches, as medians. */
export async function benchKernels(gpu: CudaBackend, log: (line: string) => void): Promise<KernelTime[]> {
  const times: KernelTime[] = [];
  const held: Span[] = [];
  const room = (byteLength: number): Span => {
    const span = spanOf(gpu.allocate({ label: 'bench', cause: 'workspace', byteLength }));
    held.push(span);
    return span;
  };
  const random = (span: Span, bytes: Uint8Array): Span => {
    for (let at = 0; at < span.byteLength; at += bytes.byteLength) {
      const length = Math.min(bytes.byteLength, span.byteLength - at);
      gpu.write(subspan(span, at, length), bytes.subarray(0, length));
    }
    return span;
  };
  const clear = () => {
    for (const { buffer } of held.splice(0)) gpu.release(buffer);
  };
  const time = async (name: string, ops: readonly Op[], bytesEach: number): Promise<void> => {
    const placed: PlacedOp[] = ops.map((op) => ({ op, label: name }));
    for (let warm = 0; warm < 3; warm += 1) await gpu.submit(placed);
    const each: number[] = [];
    for (let repeat = 0; repeat < repeats; repeat += 1)
      each.push(await gpu.measure(() => gpu.submit(placed)));
    each.sort((a, b) => a - b);
    const microseconds = (each[repeats >> 1]! * 1000) / ops.length;
    const gigabytesPerSecond = bytesEach / microseconds / 1000;
    times.push({ name, microseconds, gigabytesPerSecond });
    log(
      `time ${name.padEnd(34)} ${microseconds.toFixed(2).padStart(9)} us ${gigabytesPerSecond.toFixed(0).padStart(6)} GB/s`,
    );
  };

  const weights = halves(1 << 21);
  const { hidden, ffn, vocabulary } = shape;
  const floats = random(room(512 * ffn * 4), new Uint8Array(numbers(512 * ffn).buffer));
  const out = room(512 * Math.max(ffn, vocabulary / 4) * 4);
  const bias = random(room(vocabulary * 4), new Uint8Array(numbers(vocabulary).buffer));
  const linear = (
    inputs: number,
    outputs: number,
    rows: number,
    matrix: Span,
    more: Partial<LinearOp> = {},
  ): LinearOp => ({
    kind: 'linear',
    rows,
    x: floats,
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix: { span: matrix, type: 'f16', layout: 'input-major', rowStride: outputs },
    out,
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: subspan(bias, 0, outputs * 4),
    residual: null,
    ...more,
  });
  const matrices = (inputs: number, outputs: number, count: number): Span[] => {
    const all = random(room(inputs * outputs * 2 * count), weights);
    return Array.from({ length: count }, (_, i) =>
      subspan(all, i * inputs * outputs * 2, inputs * outputs * 2),
    );
  };
  const products = async (name: string, inputs: number, outputs: number, rows: number, count: number) => {
    const ops = matrices(inputs, outputs, count).map((matrix) => linear(inputs, outputs, rows, matrix));
    await time(`${name}, ${rows} rows`, ops, inputs * outputs * 2);
  };

  for (const rows of [1, 4, 8]) {
    await products('output 2560 x 2560', hidden, hidden, rows, 40);
    await products('first 2560 x 10240', hidden, ffn, rows, 16);
    await products('second 10240 x 2560', ffn, hidden, rows, 16);
    clearSome();
  }
  await products('head 2560 x 50272', hidden, vocabulary, 1, 3);
  clearSome();
  // Query, key and value share a launch: three ops each.
  const three = matrices(hidden, hidden, 48);
  const outs = [0, 1, 2].map((i) => subspan(out, i * hidden * 4, hidden * 4));
  const ops = three.map((matrix, i) => linear(hidden, hidden, 1, matrix, { out: outs[i % 3]! }));
  await time('query, key, value (a third each)', ops, hidden * hidden * 2);
  clearSome();
  for (const rows of [512]) {
    await products('output 2560 x 2560', hidden, hidden, rows, 8);
    await products('first 2560 x 10240', hidden, ffn, rows, 4);
    await products('second 10240 x 2560', ffn, hidden, rows, 4);
    clearSome();
  }
  const x = subspan(floats, 0, hidden * 4);
  const norm: Op = {
    kind: 'norm',
    norm: 'layer',
    rows: 1,
    width: hidden,
    epsilon: 1e-5,
    x,
    gamma: subspan(bias, 0, hidden * 4),
    beta: subspan(bias, 0, hidden * 4),
    out: subspan(out, 0, hidden * 4),
  };
  await time(
    'norm 2560',
    Array.from({ length: 32 }, () => norm),
    hidden * 8,
  );
  const width = shape.heads * shape.headDim;
  const cacheBytes = width * shape.capacity * 2;
  for (const position of [31, 543]) {
    const positions = room(8);
    gpu.write(positions, new Uint8Array(Int32Array.of(0, position).buffer));
    const attention = Array.from(
      { length: 32 },
      (): Op => ({
        kind: 'attention',
        rows: 1,
        heads: shape.heads,
        positions,
        scale: 0.1,
        query: subspan(floats, 0, width * 4),
        cache: {
          type: 'f16',
          keys: random(room(cacheBytes), weights),
          values: random(room(cacheBytes), weights),
          slots: 1,
          kvHeads: shape.heads,
          headDim: shape.headDim,
          capacity: shape.capacity,
        },
        scratch: out,
        out: subspan(out, 0, width * 4),
      }),
    );
    await time(`attention, ${position + 1} positions`, attention, 2 * width * (position + 1) * 2);
    clearSome();
  }
  // 3.4 % of the neurons active.
  const activation = new Float32Array(ffn);
  let state = 9;
  let active = 0;
  for (let i = 0; i < ffn; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    if (state / 2 ** 32 < 0.034) {
      activation[i] = 0.5;
      active += 1;
    }
  }
  const sparse = room(ffn * 4);
  gpu.write(sparse, new Uint8Array(activation.buffer));
  const set = room((ffn + 1) * 4);
  const withActive = held.length;
  const compact: Op = { kind: 'compact', rows: 1, width: ffn, x: sparse, active: set };
  await time(
    'compact 10240',
    Array.from({ length: 32 }, () => compact),
    ffn * 4,
  );
  const fromRows = (matrix: Span): Op => ({
    kind: 'active-inputs',
    rows: 1,
    x: sparse,
    xStride: ffn,
    active: set,
    listBegin: 0,
    listEnd: -1,
    slots: null,
    outputs: hidden,
    matrix: { span: matrix, type: 'f16', layout: 'input-major', rowStride: hidden },
    out: subspan(out, 0, hidden * 4),
    continues: false,
    bias: subspan(bias, 0, hidden * 4),
    residual: null,
  });
  const withSet = (matrix: Span): Op[] => [compact, fromRows(matrix)];
  await time('active rows, device', matrices(ffn, hidden, 16).map(fromRows), active * hidden * 2);
  clearSome(withActive);
  await time(
    'set and active rows, device (a half)',
    matrices(ffn, hidden, 16).flatMap(withSet),
    (active * hidden * 2) / 2,
  );
  clearSome(withActive);
  const path = join(tmpdir(), `waybill-bench-${process.pid}`);
  const byteLength = ffn * hidden * 2;
  await writeFile(
    path,
    Buffer.concat(Array.from({ length: Math.ceil(byteLength / weights.byteLength) }, () => weights)).subarray(
      0,
      byteLength,
    ),
  );
  const handle = await open(path, 'r');
  try {
    const file: TransferFile = { path, descriptor: handle.fd };
    const began = process.hrtime.bigint();
    const mirrors: Span[] = [];
    for (let i = 0; i < 8; i += 1) {
      mirrors.push(
        spanOf(await gpu.hostTier.mirror(file, 0, { label: 'mirror', cause: 'dense-weights', byteLength })),
      );
    }
    const seconds = Number(process.hrtime.bigint() - began) / 1e9;
    log(`time mirrors: ${((8 * byteLength) / seconds / 1e9).toFixed(1)} GB/s from the page cache`);
    await time('active rows, mapped host memory', mirrors.map(fromRows), active * hidden * 2);
    await time('set and active rows, mapped (a half)', mirrors.flatMap(withSet), (active * hidden * 2) / 2);
    await time(
      'dense from mapped host memory',
      mirrors.map((m) => linear(ffn, hidden, 1, m)),
      byteLength,
    );
    const target = room(byteLength);
    const copies: number[] = [];
    for (let i = 0; i < 7; i += 1)
      copies.push(Number((await gpu.transfer([{ file, position: 0, target }])).elapsedNs));
    copies.sort((a, b) => a - b);
    const rate = byteLength / copies[3]!;
    times.push({
      name: 'copy engine, host to device',
      microseconds: copies[3]! / 1000,
      gigabytesPerSecond: rate,
    });
    log(`time copy engine, host to device: ${rate.toFixed(1)} GB/s`);
    for (const { buffer } of mirrors) gpu.release(buffer);
    for (let i = 0; i < 3; i += 1) {
      const unmirrored = Number((await gpu.transfer([{ file, position: 0, target }])).elapsedNs);
      log(`time file in the page cache to the device: ${(byteLength / unmirrored).toFixed(1)} GB/s`);
    }
  } finally {
    await handle.close();
    await rm(path);
  }
  clear();
  return times;

  /** Keeps the operands that all products share. */
  function clearSome(kept = 3): void {
    for (const { buffer } of held.splice(kept)) gpu.release(buffer);
  }
}

function numbers(count: number): Float32Array {
  const values = new Float32Array(count);
  let state = 7;
  for (let i = 0; i < count; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = state / 2 ** 31 - 1;
  }
  return values;
}

/** Small finite binary16 numbers of both signs. */
function halves(count: number): Uint8Array {
  const values = new Uint16Array(count);
  let state = 1;
  for (let i = 0; i < count; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = 0x2400 | ((state >>> 16) & 0x83ff);
  }
  return new Uint8Array(values.buffer);
}
