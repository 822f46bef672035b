import type { Backend } from './backend.js';
import type { Op, PlacedOp } from './ops.js';

/** Called for each op after it ran, when a trace of op outputs was asked for. */
export type OpObserver = (placed: PlacedOp, backend: Backend) => Promise<void>;

/**
 * Collects the ops of one forward pass and submits them in order. Models and weight sources emit into it; only who
 * needs a result on the host, or a buffer back, flushes.
 */
export class Pass {
  readonly backend: Backend;
  readonly #observer: OpObserver | null;
  #queued: PlacedOp[] = [];
  #last: Promise<void> = Promise.resolve();

  constructor(backend: Backend, observer: OpObserver | null = null) {
    this.backend = backend;
    this.#observer = observer;
  }

  emit(label: string, op: Op): void {
    this.#queued.push({ label, op });
  }

  /** Submits what is queued; resolves when it and everything before it has run. Safe to leave unawaited for overlap. */
  flush(): Promise<void> {
    const ops = this.#queued;
    if (ops.length === 0) return this.#last;
    this.#queued = [];
    const previous = this.#last;
    this.#last = this.#observer === null ? this.#submit(previous, ops) : this.#observe(previous, ops);
    // A failure surfaces at the await of this or of a later flush; without a handler Node.js would end the process.
    this.#last.catch(() => {});
    return this.#last;
  }

  async #submit(previous: Promise<void>, ops: readonly PlacedOp[]): Promise<void> {
    const running = this.backend.submit(ops); // queued at once, behind the previous submission
    running.catch(() => {});
    await previous;
    await running;
  }

  async #observe(previous: Promise<void>, ops: readonly PlacedOp[]): Promise<void> {
    await previous;
    for (const placed of ops) {
      await this.backend.submit([placed]);
      await this.#observer!(placed, this.backend);
    }
  }
}
