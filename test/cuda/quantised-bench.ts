import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import type { QuantisedTuning } from '../../src/backend/cuda/quantised-shape.js';
import type { Op, PlacedOp, QuantisedLinearOp } from '../../src/backend/ops.js';
import { type QuantisedType, quantisedLayout, quantisedTypes } from '../../src/base/quantised-type.js';
import { type Span, spanOf, subspan } from '../../src/memory/buffers.js';
import { BesideCopies, copyRoomBytes, Places, type ReadTime } from './beside-copies.js';

const shapes = {
  '2.7b': { hidden: 2560, ffn: 10_240 },
  '6.7b': { hidden: 4096, ffn: 16_384 },
  '13b': { hidden: 5120, ffn: 20_480 },
} as const;
type ShapeName = keyof typeof shapes;

const scaleBytes = 96 * 1024 * 1024;
/** A submission reads at least so much, in at most so many products. */
const leastBytes = 300 * 1024 * 1024;
const mostProducts = 64;
const layers = 4;

interface Part {
  readonly name: string;
  readonly inputs: number;
  readonly outputs: number;
  readonly count: number;
}

/** Products of a decode layer that share a launch. */
function partsOf({ hidden, ffn }: (typeof shapes)[ShapeName]): readonly Part[] {
  return [
    { name: 'query, key, value', inputs: hidden, outputs: hidden, count: 3 },
    { name: 'output', inputs: hidden, outputs: hidden, count: 1 },
    { name: 'first', inputs: hidden, outputs: ffn, count: 1 },
    { name: 'second', inputs: ffn, outputs: hidden, count: 1 },
  ];
}

export interface QuantisedBenchOptions {
  readonly names: readonly ShapeName[];
  readonly rows: readonly number[];
  /** Shapes of launches to compare; `{}` is what planning prefers. */
  readonly tunings: readonly QuantisedTuning[];
}

export const everyShape: QuantisedBenchOptions = {
  names: ['2.7b', '6.7b', '13b'],
  rows: [1, 4],
  tunings: [{}],
};

/**
 * Low-bit products, each part of a layer by itself and layers of them, beside copies within the device: of as many bytes as a
 * product reads, and large ones.
 */
export async function benchQuantised(
  gpu: CudaBackend,
  log: (line: string) => void,
  { names, rows: allRows, tunings }: QuantisedBenchOptions = everyShape,
): Promise<ReadTime[]> {
  const buffers = [copyRoomBytes, copyRoomBytes, scaleBytes, 4 * 20_480 * 4, 3 * 4 * 20_480 * 4].map(
    (byteLength) => spanOf(gpu.allocate({ label: 'bench', cause: 'workspace', byteLength })),
  );
  const [from, to, scaleRoom, x, out] = buffers as [Span, Span, Span, Span, Span];
  const copies = new BesideCopies(gpu, { from, to }, log);
  try {
    gpu.write(x, numbers(x.byteLength / 4));
    const codePattern = randomBytes(1 << 20);
    for (let at = 0; at < copyRoomBytes; at += codePattern.byteLength)
      gpu.write(subspan(from, at, codePattern.byteLength), codePattern);
    const scalePattern = new Uint8Array(new Uint16Array(1 << 19).fill(0x3c00).buffer); // 2^-7
    for (let at = 0; at < scaleBytes; at += scalePattern.byteLength)
      gpu.write(subspan(scaleRoom, at, scalePattern.byteLength), scalePattern);
    for (const name of names) {
      const parts = partsOf(shapes[name]);
      for (const type of quantisedTypes) {
        for (const rows of allRows) {
          for (const tuning of tunings) {
            const [codes, scales] = [new Places(from), new Places(scaleRoom)];
            const product = ({ inputs, outputs, count }: Part): PlacedOp[] =>
              Array.from({ length: count }, (_, which) => {
                const layout = quantisedLayout(type, inputs, outputs);
                const op: Op = {
                  kind: 'quantised-linear',
                  rows,
                  x: subspan(x, 0, rows * inputs * 4),
                  inputs,
                  outputs,
                  type,
                  codes: codes.take(layout.codeBytes),
                  scales: scales.take(layout.scaleBytes),
                  out: subspan(out, which * rows * outputs * 4, rows * outputs * 4),
                  bias: null,
                  residual: null,
                };
                return { op, label: name };
              });
            const text = `${name} ${type}, ${rows} rows, `;
            const end = tunings.length > 1 ? ` ${JSON.stringify(tuning)}` : '';
            for (const part of parts) {
              await compareKernels(gpu, product(part), out);
              gpu.planWith({ quantised: tuning });
              const bytes = bytesOf(type, part);
              const count = Math.min(mostProducts, Math.max(8, Math.ceil(leastBytes / bytes)));
              const ops = Array.from({ length: count }, () => product(part)).flat();
              await copies.time(`${text}${part.name}${end}`, ops, count, bytes);
            }
            const ops = Array.from({ length: layers }, () => parts.flatMap(product)).flat();
            const bytes = parts.reduce((sum, part) => sum + bytesOf(type, part), 0);
            await copies.time(`${text}layers${end}`, ops, layers, bytes);
          }
        }
      }
    }
  } finally {
    gpu.planWith({ quantised: {} });
    for (const { buffer } of buffers) gpu.release(buffer);
  }
  return copies.times;
}

/** Shapes that the contract's cases are too small for: all kernels give the same bytes. */
async function compareKernels(gpu: CudaBackend, ops: readonly PlacedOp[], out: Span): Promise<void> {
  const results: Uint8Array[] = [];
  for (const quantised of [{ perLane: 1 }, { perLane: 2 }, { mostWarps: 3 }] as const) {
    gpu.planWith({ quantised });
    await gpu.submit(ops);
    const { rows, outputs } = ops[0]!.op as QuantisedLinearOp;
    results.push(Uint8Array.from(await gpu.read(subspan(out, 0, ops.length * rows * outputs * 4))));
    gpu.write(out, new Uint8Array(out.byteLength));
  }
  if (results.some((bytes) => Buffer.compare(bytes, results[0]!) !== 0)) {
    throw new Error(`${ops[0]!.label}: kernels of quantised products give other bytes`);
  }
}

function bytesOf(type: QuantisedType, { inputs, outputs, count }: Part): number {
  const layout = quantisedLayout(type, inputs, outputs);
  return count * (layout.codeBytes + layout.scaleBytes);
}

function numbers(count: number): Uint8Array {
  return new Uint8Array(Float32Array.from({ length: count }, (_, index) => Math.sin(index + 1)).buffer);
}

/** Codes of any value: kernels take the largest negative one, too. */
function randomBytes(byteLength: number): Uint8Array {
  let state = 20261130;
  return new Uint8Array(byteLength).map(() => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 24;
  });
}
