import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import { spanOf, subspan } from '../../memory/buffers.js';
import type { DeviceRates } from '../backend.js';
import type { PlacedOp } from '../ops.js';

/** What measuring asks of an opened GPU. */
export interface LinkBench {
  allocate(request: AllocationRequest): DeviceBuffer;
  /** Page-locked host memory that ops can read. */
  allocateMapped(request: AllocationRequest): DeviceBuffer;
  release(buffer: DeviceBuffer): void;
  write(target: Span, bytes: Uint8Array): void;
  submit(ops: readonly PlacedOp[]): Promise<void>;
  /** Enqueues a copy between any two of the buffers. */
  copy(target: DeviceBuffer, source: DeviceBuffer, byteLength: number): void;
  /** Milliseconds on the device of what `enqueue` submits. */
  measure(enqueue: () => Promise<unknown>): Promise<number>;
}

/** Larger than the second-level caches, and a millisecond or two of a PCIe 4 or 5 link. */
const copyBytes = 64 * 1024 * 1024;
/** The share of rows that published models read, a wider one, and how many products are timed as one. */
const activeShare = 0.034;
const widerShare = 4 * activeShare;
const products = 8;
const repeats = 3;

/** Copies, and products over sparse rows of F16, each the median of three; everything is given back. */
export async function measureLink(bench: LinkBench, rowBytes: number): Promise<DeviceRates> {
  const held: DeviceBuffer[] = [];
  const room = (label: string, byteLength: number): DeviceBuffer => {
    held.push(bench.allocate({ label, cause: 'workspace', byteLength }));
    return held.at(-1)!;
  };
  try {
    const host = bench.allocateMapped({ label: 'link test', cause: 'workspace', byteLength: copyBytes });
    held.push(host);
    const device = room('link test', copyBytes);
    const other = room('link test', copyBytes);
    const seconds = async (enqueue: () => Promise<unknown>): Promise<number> => {
      const times: number[] = [];
      for (let repeat = 0; repeat <= repeats; repeat += 1) times.push(await bench.measure(enqueue));
      const [, middle] = times.slice(1).sort((a, b) => a - b); // the first was to warm up
      return middle! / 1e3;
    };
    const copying = (target: DeviceBuffer, source: DeviceBuffer) => async () =>
      bench.copy(target, source, copyBytes);
    const narrow = sparseProducts(bench, room, host, rowBytes, activeShare);
    const wide = sparseProducts(bench, room, host, rowBytes, widerShare);
    const denseSeconds = await seconds(copying(device, host));
    const few = await seconds(() => bench.submit(narrow.ops));
    const many = await seconds(() => bench.submit(wide.ops));
    // No less than the wider sets take all in all, were the narrower ones disturbed.
    const more = (wide.byteLength - narrow.byteLength) / Math.max(many - few, 1e-9);
    const bytesPerSecond = Math.max(more, wide.byteLength / many);
    return {
      denseBytesPerSecond: copyBytes / denseSeconds,
      rowBytesPerSecond: narrow.byteLength / few,
      rowSet: { seconds: (few - narrow.byteLength / bytesPerSecond) / products, bytesPerSecond },
      deviceBytesPerSecond: (2 * copyBytes) / (await seconds(copying(other, device))), // read and written
    };
  } finally {
    for (const buffer of held) bench.release(buffer);
  }
}

/** Products of one token over the active rows of a matrix that lies on the host, each with rows of its own. */
function sparseProducts(
  bench: LinkBench,
  room: (label: string, byteLength: number) => DeviceBuffer,
  host: DeviceBuffer,
  rowBytes: number,
  share: number,
): { ops: readonly PlacedOp[]; byteLength: number } {
  const outputs = Math.max(2, Math.floor(rowBytes / 16) * 8); // whole vectors of 16 bytes
  const neurons = Math.min(10_240, Math.floor(copyBytes / (outputs * 2) / 128) * 128);
  const [x, set] = [room('link test', products * neurons * 4), room('link test', (neurons + 1) * 4)];
  const out = room('link test', outputs * 4);
  const activations = new Float32Array(products * neurons);
  let state = 1;
  let active = 0;
  for (let index = 0; index < activations.length; index += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    if (state / 2 ** 32 >= share) continue;
    activations[index] = 1;
    active += 1;
  }
  bench.write(spanOf(x), new Uint8Array(activations.buffer));
  const ops = Array.from({ length: products }, (_, product): PlacedOp[] => {
    const own = subspan(spanOf(x), product * neurons * 4, neurons * 4);
    return [
      {
        label: 'link test',
        op: { kind: 'compact', rows: 1, width: neurons, x: own, active: spanOf(set) },
      },
      {
        label: 'link test',
        op: {
          kind: 'active-inputs',
          rows: 1,
          x: own,
          xStride: neurons,
          active: spanOf(set),
          listBegin: 0,
          listEnd: -1,
          slots: null,
          outputs,
          matrix: {
            span: subspan(spanOf(host), 0, neurons * outputs * 2),
            type: 'f16',
            layout: 'input-major',
            rowStride: outputs,
          },
          out: spanOf(out),
          continues: false,
          bias: null,
          residual: null,
        },
      },
    ];
  }).flat();
  return { ops: Object.freeze(ops), byteLength: active * outputs * 2 };
}
