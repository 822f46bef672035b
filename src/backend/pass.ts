import type { Backend, BackendInfo } from './backend.js';
import type { Op, PlacedOp } from './ops.js';

/** Called for each op after it ran, when a trace of op outputs was asked for. */
export type OpObserver = (placed: PlacedOp, backend: Backend) => Promise<void>;

/**
 * Collects the ops of one forward pass and submits them in order. Models and weight sources emit into it; only who
 * needs a result on the host, or a buffer back, flushes.
 */
export class Pass {
  readonly backend: Backend;
  /** `native` for prompt positions on a backend in native numerics: products are emitted so. Set before the first op. */
  numerics: BackendInfo['numerics'] = 'portable';
  readonly #observer: OpObserver | null;
  #meanwhile: (() => void) | null;
  #queued: readonly PlacedOp[] = [];
  #emitted: PlacedOp[] = [];
  #submissions = 0;
  #first: readonly PlacedOp[] = [];
  #last: Promise<void> = Promise.resolve();

  /** `meanwhile`: work of the host that needs no result of this pass; done once, beside the first submission. */
  constructor(backend: Backend, observer: OpObserver | null = null, meanwhile: (() => void) | null = null) {
    this.backend = backend;
    this.#observer = observer;
    this.#meanwhile = meanwhile;
  }

  emit(label: string, op: Op): void {
    this.#emitted.push({ label, op: this.numerics === 'native' ? asNative(op) : op });
    this.#queued = this.#emitted;
  }

  /** Whether an observer sees every op. */
  get observed(): boolean {
    return this.#observer !== null;
  }

  /** Queues all ops of a pass that was one submission before; they are submitted as the same list. */
  repeat(ops: readonly PlacedOp[]): void {
    this.#queued = ops;
  }

  /** The ops of the pass where they were one submission, else null. */
  get onlySubmission(): readonly PlacedOp[] | null {
    return this.#submissions === 1 && this.#queued.length === 0 ? this.#first : null;
  }

  /** Submits what is queued; resolves when it and everything before it has run. Safe to leave unawaited for overlap. */
  flush(): Promise<void> {
    const ops = this.#queued;
    if (ops.length === 0) return this.#last;
    this.#queued = this.#emitted = [];
    if (this.#submissions++ === 0) this.#first = ops;
    const previous = this.#last;
    this.#last = this.#observer === null ? this.#submit(previous, ops) : this.#observe(previous, ops);
    // A failure surfaces at the await of this or of a later flush; without a handler Node.js would end the process.
    this.#last.catch(() => {});
    return this.#last;
  }

  async #submit(previous: Promise<void>, ops: readonly PlacedOp[]): Promise<void> {
    const running = this.backend.submit(ops); // queued at once, behind the previous submission
    running.catch(() => {});
    const meanwhile = this.#meanwhile;
    this.#meanwhile = null;
    meanwhile?.();
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

function asNative(op: Op): Op {
  const product = op.kind === 'linear' || op.kind === 'active-inputs' || op.kind === 'active-outputs';
  return product ? { ...op, numerics: 'native' } : op;
}
