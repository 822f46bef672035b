import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import { type Span, subspan } from '../../src/memory/buffers.js';
import type { KernelTime } from './bench-kernels.js';
import { CopyGraph } from './copy-graph.js';
import { median } from './pass-times.js';

/** Times of work that reads, beside copies within the device that move as many bytes. */
export interface ReadTime extends KernelTime {
  /** Of one piece of work. */
  readonly byteLength: number;
  /** Copies of the same bytes as the work reads, half of them read and half written, submitted in the same way. */
  readonly copyMicroseconds: number;
  /** Bytes that a large copy reads and writes in a second. */
  readonly largeCopyBytesPerSecond: number;
}

const repeats = 9;
const largeBytes = 256 * 1024 * 1024;
/** Of each of the two rooms that copies take: larger than second-level caches are. */
export const copyRoomBytes = 2 * largeBytes;

/** Places in a buffer larger than the second-level cache, one behind the other and round again. */
export class Places {
  readonly #span: Span;
  #next = 0;

  constructor(span: Span) {
    this.#span = span;
  }

  take(byteLength: number): Span {
    const begin = this.#next + byteLength > this.#span.byteLength ? 0 : this.#next;
    this.#next = Math.ceil((begin + byteLength) / 256) * 256;
    return subspan(this.#span, begin, byteLength);
  }
}

/** Reads and their copies in turn, each the median of `repeats`. */
export class BesideCopies {
  readonly #gpu: CudaBackend;
  readonly #from: Places;
  readonly #to: Places;
  readonly #log: (line: string) => void;
  readonly times: ReadTime[] = [];

  constructor(
    gpu: CudaBackend,
    room: { readonly from: Span; readonly to: Span },
    log: (line: string) => void,
  ) {
    this.#gpu = gpu;
    this.#from = new Places(room.from);
    this.#to = new Places(room.to);
    this.#log = log;
  }

  /** `count` pieces of work in `ops`, each of which reads `byteLength` bytes. */
  async time(name: string, ops: readonly PlacedOp[], count: number, byteLength: number): Promise<ReadTime> {
    const frozen = Object.freeze([...ops]);
    const half = Math.ceil(byteLength / 2 / 16) * 16;
    for (let warm = 0; warm < 3; warm += 1) await this.#gpu.submit(frozen);
    const graphs = [
      this.#copies(count, half),
      this.#copies(2, largeBytes), // two, as begin and end of a graph count
    ];
    const each: number[][] = [[], [], []];
    for (let repeat = 0; repeat < repeats; repeat += 1) {
      each[0]!.push(await this.#gpu.measure(() => this.#gpu.submit(frozen)));
      graphs.forEach((graph, index) => void each[index + 1]!.push(graph.milliseconds()));
    }
    for (const graph of graphs) graph.close();
    const [work, copy, large] = each.map(median);
    const time: ReadTime = {
      name,
      microseconds: (work! * 1000) / count,
      gigabytesPerSecond: (byteLength * count) / work! / 1e6,
      byteLength,
      copyMicroseconds: (copy! * 1000) / count,
      largeCopyBytesPerSecond: (4 * largeBytes) / (large! / 1000),
    };
    this.times.push(time);
    const large1 = time.largeCopyBytesPerSecond;
    this.#log(
      `time ${name.padEnd(40)} ${time.microseconds.toFixed(2).padStart(7)} us ${(byteLength / 1e6).toFixed(1).padStart(6)} MB ${time.gigabytesPerSecond.toFixed(0).padStart(5)} GB/s, ${((time.gigabytesPerSecond * 1e9) / large1).toFixed(2)} of large copies' ${(large1 / 1e12).toFixed(2)} TB/s, ${(time.copyMicroseconds / time.microseconds).toFixed(2)} of as many bytes copied in ${time.copyMicroseconds.toFixed(2)} us`,
    );
    return time;
  }

  #copies(count: number, byteLength: number): CopyGraph {
    const copies = Array.from({ length: count }, () => ({
      from: this.#from.take(byteLength),
      to: this.#to.take(byteLength),
    }));
    const graph = new CopyGraph(copies);
    for (let warm = 0; warm < 2; warm += 1) graph.milliseconds();
    return graph;
  }
}
