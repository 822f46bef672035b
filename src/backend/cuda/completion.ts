import { setTimeout as delay, setImmediate as immediate } from 'node:timers/promises';
import type { ExecutionError } from '../../base/errors.js';
import { check, cudaCodes, type DriverLibrary } from './driver.js';

const withoutTiming = 2;
/** For so long a wait polls without sleeping: longer than a decode pass, so that tokens are not rounded up to timer ticks. */
const busyNs = 100_000_000n;

/**
 * Waits for the end of enqueued work without blocking the event loop. Events are pooled. A failure of the GPU is final:
 * everything that waits, and everything later, meets the same error.
 */
export class Completion {
  readonly #driver: DriverLibrary;
  readonly #enter: () => void;
  readonly #onFailure: (call: string, code: number) => ExecutionError;
  readonly #free: bigint[] = [];
  readonly #all: bigint[] = [];

  constructor(
    driver: DriverLibrary,
    enter: () => void,
    onFailure: (call: string, code: number) => ExecutionError,
  ) {
    this.#driver = driver;
    this.#enter = enter;
    this.#onFailure = onFailure;
  }

  /** Marks the end of what a stream holds now; the promise resolves there. The context is current. */
  after(stream: bigint): Promise<void> {
    const event = this.#take();
    const code = this.#driver.cuEventRecord(event, stream);
    if (code !== cudaCodes.success) {
      this.#free.push(event);
      return Promise.reject(this.#onFailure('cuEventRecord', code));
    }
    return this.#poll(event);
  }

  async #poll(event: bigint): Promise<void> {
    const began = process.hrtime.bigint();
    try {
      for (;;) {
        this.#enter();
        const code = this.#driver.cuEventQuery(event);
        if (code === cudaCodes.success) return;
        if (code !== cudaCodes.notReady) throw this.#onFailure('cuEventQuery', code);
        if (process.hrtime.bigint() - began < busyNs) await immediate();
        else await delay(1);
      }
    } finally {
      this.#free.push(event);
    }
  }

  #take(): bigint {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    const room = new BigUint64Array(1);
    check(this.#driver, 'cuEventCreate', this.#driver.cuEventCreate(room, withoutTiming));
    this.#all.push(room[0]!);
    return room[0]!;
  }

  close(): void {
    for (const event of this.#all) this.#driver.cuEventDestroy_v2(event);
  }
}
