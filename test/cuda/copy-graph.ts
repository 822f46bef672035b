import { check, type DriverLibrary, loadDriver } from '../../src/backend/cuda/driver.js';
import type { Span } from '../../src/memory/buffers.js';

/** One copy within the device. */
export interface DeviceCopy {
  readonly from: Span;
  readonly to: Span;
}

/** Copies within the device, one behind another as nodes of one graph: submitted as kernels of decode passes are. */
export class CopyGraph {
  readonly #driver: DriverLibrary = loadDriver();
  readonly #stream: bigint;
  readonly #graph: bigint;
  readonly #events: readonly bigint[];

  /** The context of the spans is the thread's current one. */
  constructor(copies: readonly DeviceCopy[]) {
    const driver = this.#driver;
    const made = (call: string, make: (room: BigUint64Array) => number): bigint => {
      const room = new BigUint64Array(1);
      check(driver, call, make(room), 'record copies');
      return room[0]!;
    };
    const nonBlocking = 1;
    const threadLocal = 1;
    this.#stream = made('cuStreamCreate', (room) => driver.cuStreamCreate(room, nonBlocking));
    check(driver, 'cuStreamBeginCapture', driver.cuStreamBeginCapture_v2(this.#stream, threadLocal));
    for (const { from, to } of copies) {
      const code = driver.cuMemcpyAsync(addressOf(to), addressOf(from), from.byteLength, this.#stream);
      check(driver, 'cuMemcpyAsync', code, 'record copies');
    }
    const graph = made('cuStreamEndCapture', (room) => driver.cuStreamEndCapture(this.#stream, room));
    this.#graph = made('cuGraphInstantiate', (room) => driver.cuGraphInstantiateWithFlags(room, graph, 0));
    driver.cuGraphDestroy(graph);
    this.#events = [0, 1].map(() => made('cuEventCreate', (room) => driver.cuEventCreate(room, 0)));
  }

  /** Milliseconds on the device of all copies, by events around them. */
  milliseconds(): number {
    const driver = this.#driver;
    const [began, ended] = this.#events;
    check(driver, 'cuEventRecord', driver.cuEventRecord(began!, this.#stream));
    check(driver, 'cuGraphLaunch', driver.cuGraphLaunch(this.#graph, this.#stream));
    check(driver, 'cuEventRecord', driver.cuEventRecord(ended!, this.#stream));
    check(driver, 'cuStreamSynchronize', driver.cuStreamSynchronize(this.#stream));
    const elapsed = new Float32Array(1);
    check(driver, 'cuEventElapsedTime', driver.cuEventElapsedTime(elapsed, began!, ended!));
    return elapsed[0]!;
  }

  close(): void {
    for (const event of this.#events) this.#driver.cuEventDestroy_v2(event);
    this.#driver.cuGraphExecDestroy(this.#graph);
    this.#driver.cuStreamDestroy_v2(this.#stream);
  }
}

function addressOf({ buffer, byteOffset }: Span): number {
  return buffer.address + byteOffset;
}
