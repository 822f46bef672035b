import { Worker } from 'node:worker_threads';
import { builtModule } from '../../base/built-module.js';
import { ExecutionError } from '../../base/errors.js';
import { wordsPerOp } from './program.js';
import type { SharedMemory, WasmCode } from './wasm-api.js';
import { dispatchAt, failureAt, opCountAt, opsPerDispatch, programAt, ticketsAt } from './wasm-layout.js';
import type { WasmWorkerData } from './wasm-worker.js';

/**
 * The compute threads. They sleep until a program is dispatched and keep the process alive only while one runs.
 * When one dies the rest are stopped: they would wait for it at a barrier for ever.
 */
export class WasmThreads {
  readonly #words: Int32Array;
  readonly #program: Float64Array;
  readonly #workers: Worker[] = [];
  readonly #exits: Promise<void>[] = [];
  #running: { resolve: () => void; reject: (error: Error) => void } | null = null;
  #failure: ExecutionError | null = null;
  #closing = false;

  private constructor(memory: SharedMemory) {
    this.#words = new Int32Array(memory.buffer, 0, programAt / 4);
    this.#program = new Float64Array(memory.buffer, programAt, opsPerDispatch * wordsPerOp);
  }

  /** Starts `threads` threads; rejects with `ExecutionError` `worker-died` when one of them does not come up. */
  static async start(module: WasmCode, memory: SharedMemory, threads: number): Promise<WasmThreads> {
    const group = new WasmThreads(memory);
    const file = builtModule('backend/cpu/wasm-worker.js');
    try {
      await Promise.all(
        Array.from({ length: threads }, (_, thread) =>
          group.#startOne(file, { module, memory, thread, threads }),
        ),
      );
    } catch (error) {
      await group.close();
      throw error;
    }
    for (const worker of group.#workers) worker.unref();
    return group;
  }

  /** Worker threads by index, for tests that make one die. */
  get workers(): readonly Worker[] {
    return this.#workers;
  }

  #startOne(file: URL, data: WasmWorkerData): Promise<void> {
    const worker = new Worker(file, {
      workerData: data,
      name: `waybill-cpu-${data.thread}`,
      // Flags of the host process (loaders of a test runner, a debugger) are none of a kernel thread's business.
      execArgv: [],
    });
    this.#workers.push(worker);
    this.#exits.push(new Promise((resolve) => worker.once('exit', () => resolve())));
    return new Promise((resolve, reject) => {
      const died = (reason: string, cause?: unknown): void => {
        const error = new ExecutionError(
          'worker-died',
          `Cannot run ops: compute thread ${data.thread} of ${data.threads} ${reason}`,
          { thread: data.thread, threads: data.threads },
          { cause },
        );
        reject(error);
        this.#fail(error);
      };
      worker.on('message', (message) => {
        if (message === 'ready') resolve();
        else this.#finish();
      });
      worker.on('error', (error: unknown) =>
        died(`failed, ${error instanceof Error ? error.message : String(error)}`, error),
      );
      worker.on('exit', (code) => {
        if (!this.#closing) died(`ended with code ${code}`);
      });
    });
  }

  /** Runs at most `opsPerDispatch` encoded ops; resolves to the failure word. One at a time. */
  async run(program: Float64Array): Promise<number> {
    if (this.#failure !== null) throw this.#failure;
    this.#words.fill(0, ticketsAt / 4, ticketsAt / 4 + opsPerDispatch);
    this.#words[failureAt / 4] = 0;
    this.#program.set(program);
    const done = new Promise<void>((resolve, reject) => {
      this.#running = { resolve, reject };
    });
    this.#workers[0]!.ref();
    this.#dispatch(program.length / wordsPerOp);
    await done;
    return Atomics.load(this.#words, failureAt / 4);
  }

  #dispatch(opCount: number): void {
    Atomics.store(this.#words, opCountAt / 4, opCount);
    Atomics.add(this.#words, dispatchAt / 4, 1);
    Atomics.notify(this.#words, dispatchAt / 4);
  }

  #finish(): void {
    this.#workers[0]!.unref();
    const running = this.#running;
    this.#running = null;
    running?.resolve();
  }

  #fail(error: ExecutionError): void {
    if (this.#failure !== null) return;
    this.#failure = error;
    const running = this.#running;
    this.#running = null;
    running?.reject(error);
    this.#stop();
  }

  #stop(): void {
    this.#closing = true;
    for (const worker of this.#workers) void worker.terminate();
  }

  /** The threads end; resolves when they have. Nothing may be running. */
  async close(): Promise<void> {
    if (this.#failure === null && !this.#closing) {
      this.#closing = true;
      for (const worker of this.#workers) worker.ref();
      this.#dispatch(-1);
    }
    await Promise.all(this.#exits);
  }
}
