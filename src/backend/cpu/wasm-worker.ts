import { parentPort, workerData } from 'node:worker_threads';
import { type SharedMemory, type WasmCode, wasm } from './wasm-api.js';
import { dispatchAt, opCountAt, programAt, scratchAt } from './wasm-layout.js';

/** What a compute thread starts with. */
export interface WasmWorkerData {
  readonly module: WasmCode;
  readonly memory: SharedMemory;
  readonly thread: number;
  readonly threads: number;
}

/** Exports of dist/backend/cpu/kernels.wasm. */
export interface WasmKernels {
  start(thread: number, threads: number, scratch: number): void;
  run(program: number, count: number): void;
}

const { module, memory, thread, threads } = workerData as WasmWorkerData;
const kernels = new wasm.Instance(module, { env: { memory } }).exports as unknown as WasmKernels;
const words = new Int32Array(memory.buffer, 0, programAt / 4);
kernels.start(thread, threads, scratchAt(thread));
parentPort!.postMessage('ready');

// The counter starts at 0: a thread that read it here could miss the first program.
let seen = 0;
for (;;) {
  Atomics.wait(words, dispatchAt / 4, seen);
  if (Atomics.load(words, dispatchAt / 4) === seen) continue;
  seen = (seen + 1) | 0;
  const count = Atomics.load(words, opCountAt / 4);
  if (count < 0) break;
  kernels.run(programAt, count);
  // Every thread is past the last barrier of the program once one of them is.
  if (thread === 0) parentPort!.postMessage('done');
}
