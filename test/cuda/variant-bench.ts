import { createHash } from 'node:crypto';
import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import type { PlanChoices } from '../../src/backend/cuda/launch.js';
import { attentionName, attentionVariants } from '../../src/backend/cuda/plan-attention.js';
import { chooseTile, tileName, tileVariants } from '../../src/backend/cuda/tile-variants.js';
import type { AttentionOp, LinearOp, Op } from '../../src/backend/ops.js';
import { type Span, spanOf, subspan } from '../../src/memory/buffers.js';
import { decodeLayers } from './decode-layers.js';
import type { TestCounts } from './mini-runner.js';
import { benchStreams } from './stream-bench.js';

/** A kernel's time among others that give the same bytes. */
export interface VariantTime {
  readonly work: string;
  readonly variant: string;
  /** What planning takes by itself. */
  readonly planned: boolean;
  readonly microseconds: number;
}

/** OPT-2.7B. */
const shape = { hidden: 2560, ffn: 10_240, heads: 32, headDim: 80 };
const repeats = 5;

/**
 * Times every variant of tiled products and of attention at the sizes of OPT-2.7B, and a chain of decode layers with and
 * without overlap of launches: by events, in graphs. The bytes of all variants of one work must be equal.
 */
export async function benchVariants(
  gpu: CudaBackend,
  counts: TestCounts,
  log: (line: string) => void,
): Promise<VariantTime[]> {
  const bench = new VariantBench(gpu, counts, log);
  try {
    await benchTiles(bench);
    await benchAttention(bench);
    await benchChain(bench);
    await benchStreams(bench);
  } finally {
    bench.clear();
    gpu.planWith({ variants: {}, tuning: {} });
  }
  return bench.times;
}

class VariantBench {
  readonly times: VariantTime[] = [];
  readonly #gpu: CudaBackend;
  readonly #counts: TestCounts;
  readonly #log: (line: string) => void;
  readonly #held: Span[] = [];

  constructor(gpu: CudaBackend, counts: TestCounts, log: (line: string) => void) {
    this.#gpu = gpu;
    this.#counts = counts;
    this.#log = log;
  }

  get multiprocessors(): number {
    return this.#gpu.device.multiprocessors;
  }

  room(byteLength: number): Span {
    const span = spanOf(this.#gpu.allocate({ label: 'bench', cause: 'workspace', byteLength }));
    this.#held.push(span);
    return span;
  }

  /** Room filled with `bytes` over and over. */
  filled(byteLength: number, bytes: Uint8Array): Span {
    const span = this.room(byteLength);
    for (let at = 0; at < byteLength; at += bytes.byteLength) {
      const length = Math.min(bytes.byteLength, byteLength - at);
      this.#gpu.write(subspan(span, at, length), bytes.subarray(0, length));
    }
    return span;
  }

  halves(byteLength: number): Span {
    return this.filled(byteLength, halves(1 << 20));
  }

  floats(byteLength: number): Span {
    return this.filled(byteLength, numbers(1 << 16));
  }

  integers(values: readonly number[]): Span {
    return this.filled(values.length * 4, new Uint8Array(Int32Array.from(values).buffer));
  }

  planWith(choices: PlanChoices): void {
    this.#gpu.planWith(choices);
  }

  clear(): void {
    for (const { buffer } of this.#held.splice(0)) this.#gpu.release(buffer);
  }

  /** Times `ops` under each choice; `units` of them, each of which reads `bytes`, share the time that is reported. */
  async compare(
    work: string,
    ops: readonly Op[],
    units: number,
    out: Span,
    choices: readonly { name: string; planned: boolean; plan: PlanChoices }[],
    bytes?: number,
  ): Promise<void> {
    const placed = ops.map((op) => ({ op, label: work }));
    const runs = choices.map((choice) => ({ ...choice, each: [] as number[], digest: '' }));
    for (const run of runs) {
      try {
        this.#gpu.planWith(run.plan);
        // A variant that leaves something out must not find what another one wrote.
        this.#overwrite(out);
        // Planned, recorded, replayed once.
        for (let warm = 0; warm < 3; warm += 1) await this.#gpu.submit(placed);
        for (let repeat = 0; repeat < repeats; repeat += 1) {
          run.each.push(await this.#gpu.measure(() => this.#gpu.submit(placed)));
        }
        run.digest = createHash('sha256')
          .update(await this.#gpu.read(out))
          .digest('hex');
      } catch (error) {
        this.#fail(`${work} with ${run.name}`, error instanceof Error ? error.message : String(error));
      }
    }
    const [first] = runs;
    for (const { name, planned, each, digest } of runs) {
      if (each.length < repeats) continue;
      if (digest !== first!.digest) this.#fail(`${work} with ${name}`, `other bytes than ${first!.name}`);
      each.sort((a, b) => a - b);
      const microseconds = (each[each.length >> 1]! * 1000) / units;
      this.times.push({ work, variant: name, planned, microseconds });
    }
    const measured = this.times.filter((time) => time.work === work);
    measured.sort((a, b) => a.microseconds - b.microseconds);
    for (const [index, { variant, planned, microseconds }] of measured.entries()) {
      const rate = bytes === undefined ? '' : ` ${(bytes / microseconds / 1e6).toFixed(2)} TB/s`;
      const note = `${rate}${index === 0 ? ' fastest' : ''}${planned ? ' planned' : ''}`;
      this.#log(`variant ${work.padEnd(40)} ${variant.padEnd(16)} ${microseconds.toFixed(2)} us${note}`);
    }
  }

  #overwrite(span: Span): void {
    const bytes = new Uint8Array(Math.min(span.byteLength, 1 << 20)).fill(0xff);
    for (let at = 0; at < span.byteLength; at += bytes.byteLength) {
      const length = Math.min(bytes.byteLength, span.byteLength - at);
      this.#gpu.write(subspan(span, at, length), bytes.subarray(0, length));
    }
  }

  #fail(name: string, message: string): void {
    this.#counts.failures.push({ name, message });
    this.#log(`FAIL ${name}: ${message}`);
  }
}

async function benchTiles(bench: VariantBench): Promise<void> {
  const { hidden, ffn } = shape;
  const sizes: readonly (readonly [number, number])[] = [
    [hidden, hidden],
    [hidden, ffn],
    [ffn, hidden],
  ];
  const mostRows = 512;
  for (const [inputs, outputs] of sizes) {
    const matrices = Array.from({ length: 3 }, () => bench.filled(inputs * outputs * 2, halves(1 << 20)));
    const x = bench.filled(mostRows * inputs * 4, numbers(1 << 20));
    const out = bench.room(mostRows * outputs * 4);
    for (const rows of [32, 128, mostRows]) {
      const ops = matrices.map(
        (matrix): LinearOp => ({
          kind: 'linear',
          rows,
          x,
          xStride: inputs,
          inputBegin: 0,
          inputEnd: inputs,
          outputs,
          matrix: { span: matrix, type: 'f16', layout: 'input-major', rowStride: outputs },
          out,
          outStride: outputs,
          outOffset: 0,
          continues: false,
          bias: null,
          residual: null,
        }),
      );
      const chosen = tileName(chooseTile('input-major', rows, outputs, bench.multiprocessors, null));
      await bench.compare(
        `${rows} rows, ${inputs} x ${outputs}`,
        ops,
        ops.length,
        subspan(out, 0, rows * outputs * 4),
        tileVariants
          .filter(({ layout }) => layout === 'input-major')
          .map((variant) => ({
            name: tileName(variant),
            planned: tileName(variant) === chosen,
            plan: { variants: { tile: tileName(variant) } },
          })),
      );
    }
    bench.clear();
  }
}

async function benchAttention(bench: VariantBench): Promise<void> {
  const width = shape.heads * shape.headDim;
  const cases = (['f16', 'f32'] as const).flatMap((type) => [
    { type, rows: 1, positions: 64, capacity: 640 },
    { type, rows: 1, positions: 544, capacity: 640 },
    { type, rows: 1, positions: 2048, capacity: 2176 },
    { type, rows: 8, positions: 544, capacity: 640 },
    { type, rows: 512, positions: 512, capacity: 640 },
  ]);
  const layers = 16;
  for (const { type, rows, positions, capacity } of cases) {
    // A batch has a slot a row, a prompt one slot.
    const slots = rows <= 8 ? rows : 1;
    const elementBytes = type === 'f16' ? 2 : 4;
    const bytes = slots * width * capacity * elementBytes;
    const pattern = type === 'f16' ? halves(1 << 20) : numbers(1 << 20);
    const places = Int32Array.from({ length: 2 * rows }, (_, index) => {
      const row = index >> 1;
      if (index % 2 === 0) return rows <= 8 ? row : 0;
      return rows <= 8 ? positions - 1 : row;
    });
    const where = bench.filled(places.byteLength, new Uint8Array(places.buffer));
    const query = bench.filled(rows * width * 4, numbers(1 << 16));
    const out = bench.room(rows * width * 4);
    const scratch = bench.room(16 * capacity * 4);
    const ops = Array.from(
      { length: layers },
      (): AttentionOp => ({
        kind: 'attention',
        rows,
        heads: shape.heads,
        positions: where,
        scale: 0.1,
        query,
        cache: {
          type,
          keys: bench.filled(bytes, pattern),
          values: bench.filled(bytes, pattern),
          slots,
          kvHeads: shape.heads,
          headDim: shape.headDim,
          capacity,
        },
        scratch,
        out,
      }),
    );
    const names = [...attentionVariants.map(attentionName), 'tiles', 'rows'];
    await bench.compare(`attention ${type}, ${rows} rows at ${positions}`, ops, layers, out, [
      { name: 'as planned', planned: true, plan: { variants: {} } },
      ...names.map((name) => ({ name, planned: false, plan: { variants: { attention: name } } })),
    ]);
    bench.clear();
  }
}

async function benchChain(bench: VariantBench): Promise<void> {
  const layers = 8;
  const { ops, out } = decodeLayers(layers, 544, bench);
  await bench.compare(
    'decode layer of 2.7B, position 544',
    ops,
    layers,
    out,
    [true, false].flatMap((overlaps) =>
      [100, -1].map((sharedCarveout) => ({
        name: `${overlaps ? 'overlap' : 'no overlap'}, carveout ${sharedCarveout}`,
        planned: overlaps && sharedCarveout === 100,
        plan: { overlaps, sharedCarveout },
      })),
    ),
  );
  // As opened.
  bench.planWith({ overlaps: true, sharedCarveout: 100 });
}

/** F32 numbers between -1 and 1. */
function numbers(count: number): Uint8Array {
  const values = new Float32Array(count);
  let state = 7;
  for (let i = 0; i < count; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = state / 2 ** 31 - 1;
  }
  return new Uint8Array(values.buffer);
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
