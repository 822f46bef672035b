import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import type { Op, PlacedOp, QuantisedLinearOp } from '../../src/backend/ops.js';
import { quantisedLayout, quantisedTypes } from '../../src/base/quantised-type.js';
import { type Span, spanOf, subspan } from '../../src/memory/buffers.js';
import type { KernelTime } from './bench-kernels.js';
import { submissionMs } from './pass-times.js';

const hidden = 2560;
const ffn = 10_240;
/** Layers in turn, so that the second-level cache holds none. */
const layers = 8;
const repeats = 9;

/** Products of a decode layer of 2.7B that share a launch. */
const parts = [
  { name: 'query, key, value', inputs: hidden, outputs: hidden, count: 3 },
  { name: 'output', inputs: hidden, outputs: hidden, count: 1 },
  { name: 'first', inputs: hidden, outputs: ffn, count: 1 },
  { name: 'second', inputs: ffn, outputs: hidden, count: 1 },
] as const;

/** Low-bit products against the rate of copies within the device: each part by itself, and layers of them. */
export async function benchQuantised(gpu: CudaBackend, log: (line: string) => void): Promise<KernelTime[]> {
  const times: KernelTime[] = [];
  const held: Span[] = [];
  const room = (byteLength: number): Span => {
    const span = spanOf(gpu.allocate({ label: 'bench', cause: 'workspace', byteLength }));
    held.push(span);
    return span;
  };
  const { deviceBytesPerSecond = Number.NaN } = await gpu.hostTier.measureLink!(hidden * 2);
  const time = async (name: string, ops: readonly Op[], bytes: number): Promise<void> => {
    const submission: readonly PlacedOp[] = Object.freeze(ops.map((op) => ({ op, label: name })));
    const milliseconds = await submissionMs(gpu, submission, repeats);
    const gigabytesPerSecond = bytes / milliseconds / 1e6;
    const microseconds = (milliseconds * 1000) / layers;
    times.push({ name, microseconds, gigabytesPerSecond });
    const share = (gigabytesPerSecond * 1e9) / deviceBytesPerSecond;
    log(
      `time ${name.padEnd(40)} ${microseconds.toFixed(2).padStart(8)} us ${gigabytesPerSecond.toFixed(0).padStart(6)} GB/s, ${share.toFixed(2)} of the copy rate ${(deviceBytesPerSecond / 1e12).toFixed(2)} TB/s`,
    );
  };
  try {
    const [x, out] = [room(4 * ffn * 4), room(3 * 4 * ffn * 4)];
    gpu.write(x, numbers(x.byteLength / 4));
    const pattern = randomBytes(1 << 20);
    for (const type of quantisedTypes) {
      const matrices = Array.from({ length: layers }, () =>
        parts.map(({ inputs, outputs, count }) =>
          Array.from({ length: count }, () => {
            const { byteLength, codeBytes, scalesOffset, scaleBytes } = quantisedLayout(
              type,
              inputs,
              outputs,
            );
            const span = room(byteLength);
            for (let at = 0; at < codeBytes; at += pattern.byteLength) {
              const length = Math.min(pattern.byteLength, codeBytes - at);
              gpu.write(subspan(span, at, length), pattern.subarray(0, length));
            }
            const scales = new Uint16Array(scaleBytes / 2).fill(0x3c00); // 2^-7
            gpu.write(subspan(span, scalesOffset, scaleBytes), new Uint8Array(scales.buffer));
            return { codes: subspan(span, 0, codeBytes), scales: subspan(span, scalesOffset, scaleBytes) };
          }),
        ),
      );
      for (const rows of [1, 4]) {
        const opsOf = (part: number): QuantisedLinearOp[] => {
          const { inputs, outputs } = parts[part]!;
          return matrices.flatMap((layer) =>
            layer[part]!.map((matrix, which) => ({
              kind: 'quantised-linear',
              rows,
              x: subspan(x, 0, rows * inputs * 4),
              inputs,
              outputs,
              type,
              ...matrix,
              out: subspan(out, which * rows * outputs * 4, rows * outputs * 4),
              bias: null,
              residual: null,
            })),
          );
        };
        const bytesOf = (part: number): number =>
          matrices.reduce(
            (sum, layer) =>
              sum +
              layer[part]!.reduce((all, { codes, scales }) => all + codes.byteLength + scales.byteLength, 0),
            0,
          );
        for (const [part, { name }] of parts.entries()) {
          await time(`${type}, ${rows} rows, ${name}`, opsOf(part), bytesOf(part));
        }
        const all = parts.map((_, part) => opsOf(part));
        const layered = Array.from({ length: layers }, (_, layer) =>
          parts.flatMap(({ count }, part) => all[part]!.slice(layer * count, (layer + 1) * count)),
        ).flat();
        const bytes = parts.reduce((sum, _, part) => sum + bytesOf(part), 0);
        await time(`${type}, ${rows} rows, layers`, layered, bytes);
      }
      for (const span of held.splice(2)) gpu.release(span.buffer);
    }
  } finally {
    for (const { buffer } of held) gpu.release(buffer);
  }
  return times;
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
