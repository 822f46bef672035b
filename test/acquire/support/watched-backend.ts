import type { Backend, Transfer, TransferFile, TransferReport } from '../../../src/backend/backend.js';
import type { Op, PlacedOp } from '../../../src/backend/ops.js';
import { ExecutionError } from '../../../src/base/errors.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../../src/memory/buffers.js';

/** What a watched backend does beside its work. */
export interface Disturbance {
  /** Runs before each submission and each transfer takes effect. */
  readonly delay?: () => Promise<void>;
  /** True: this op's submission rejects, and runs nothing. */
  readonly failsOp?: (placed: PlacedOp) => boolean;
  /** True: the transfer with this number, counted from 0, rejects after it has moved its bytes. */
  readonly failsTransfer?: (number: number) => boolean;
}

/**
 * Passes everything on to another backend, later than asked, and notes every case in which bytes are moved or written
 * while a submission that is not done uses them, or used while they are still on their way.
 */
export class WatchedBackend implements Backend {
  disturbance: Disturbance;
  /** What went wrong, in words; empty for a correct source. */
  readonly races: string[] = [];
  /** In the order of events: `read begin`, `read end`, `op begin`, `op end`, with labels. */
  readonly events: string[] = [];
  /** Times that a read began while an op was running, or the other way round. */
  overlaps = 0;
  readonly #inner: Backend;
  readonly #reading = new Set<readonly Span[]>();
  readonly #computing = new Set<readonly Span[]>();
  #submitted: Promise<void> = Promise.resolve();
  #transfers = 0;

  constructor(inner: Backend, disturbance: Disturbance = {}) {
    this.#inner = inner;
    this.disturbance = disturbance;
  }

  get info() {
    return this.#inner.info;
  }

  get parallelism() {
    return this.#inner.parallelism;
  }

  get addressableBytes() {
    return this.#inner.addressableBytes;
  }

  allocate(request: AllocationRequest): DeviceBuffer {
    return this.#inner.allocate(request);
  }

  release(buffer: DeviceBuffer): void {
    const uses = [...this.#reading, ...this.#computing].flat();
    if (uses.some((span) => span.buffer === buffer)) this.races.push(`"${buffer.label}" released in use`);
    this.#inner.release(buffer);
  }

  submit(ops: readonly PlacedOp[]): Promise<void> {
    const spans = ops.flatMap(({ op }) => spansOf(op));
    const labels = ops.map(({ label }) => label);
    this.#note(spans, this.#reading, `ops ${labels.join(', ')} use bytes that are still read`);
    if (ops.length > 0 && this.#reading.size > 0) this.overlaps += 1;
    this.#computing.add(spans);
    for (const label of labels) this.events.push(`op begin ${label}`);
    const running = this.#submitted.then(async () => {
      try {
        await this.disturbance.delay?.();
        const failing = ops.find((placed) => this.disturbance.failsOp?.(placed) === true);
        if (failing !== undefined) throw new ExecutionError('injected', `Cannot run "${failing.label}"`);
        await this.#inner.submit(ops);
      } finally {
        this.#computing.delete(spans);
        for (const label of labels) this.events.push(`op end ${label}`);
      }
    });
    this.#submitted = running.catch(() => {});
    return running;
  }

  write(target: Span, bytes: Uint8Array): void {
    this.#note([target], this.#computing, `"${target.buffer.label}" written while ops use it`);
    this.#inner.write(target, bytes);
  }

  async read(source: Span): Promise<Uint8Array> {
    await this.#submitted;
    return this.#inner.read(source);
  }

  async transfer(transfers: readonly Transfer[]): Promise<TransferReport> {
    const number = this.#transfers;
    this.#transfers += 1;
    const spans = transfers.map(({ target }) => target);
    const label = spans[0]?.buffer.label ?? 'nothing';
    this.#note(spans, this.#computing, `"${label}" read into while ops use it`);
    this.#note(spans, this.#reading, `"${label}" read into twice at once`);
    if (this.#computing.size > 0) this.overlaps += 1;
    this.#reading.add(spans);
    this.events.push(`read begin ${label}`);
    try {
      await this.disturbance.delay?.();
      const report = await this.#inner.transfer(transfers);
      if (this.disturbance.failsTransfer?.(number) === true) {
        throw new ExecutionError('injected', `Cannot read into "${label}"`);
      }
      return report;
    } finally {
      this.#reading.delete(spans);
      this.events.push(`read end ${label}`);
    }
  }

  prefetch(file: TransferFile, regions: readonly { position: number; byteLength: number }[]): void {
    this.#inner.prefetch(file, regions);
  }

  async close(): Promise<void> {
    await this.#inner.close();
  }

  #note(spans: readonly Span[], others: ReadonlySet<readonly Span[]>, what: string): void {
    for (const other of others) {
      if (spans.some((span) => other.some((used) => overlap(span, used)))) this.races.push(what);
    }
  }
}

/** Bytes that an op reads or writes; of an arena with slots, only the slot list stands for the rows. */
function spansOf(op: Op): Span[] {
  switch (op.kind) {
    case 'linear':
      return [op.x, op.matrix.span, op.out, op.bias, op.residual].filter((span) => span !== null);
    case 'active-inputs':
    case 'active-outputs':
      return [op.x, op.active, op.slots, op.slots === null ? op.matrix.span : null, op.out].filter(
        (span) => span !== null,
      );
    case 'compact':
      return [op.x, op.active];
    case 'gather':
      return [op.table, op.ids, op.out];
    default:
      return [];
  }
}

function overlap(a: Span, b: Span): boolean {
  if (a.buffer !== b.buffer) return false;
  return a.byteOffset < b.byteOffset + b.byteLength && b.byteOffset < a.byteOffset + a.byteLength;
}
