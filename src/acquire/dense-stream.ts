import { DefectError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import { pieceRegion, type StreamedMatrix } from './bound-matrix.js';
import type { WeightMover } from './executor.js';
import type { Piece } from './pieces.js';
import type { PassKind } from './weight-source.js';

/** A piece of a streamed matrix in the order of use. */
export interface StreamedPiece {
  readonly matrix: StreamedMatrix;
  readonly piece: Piece;
}

/** What streamed in every pass of a kind, in the order of use. Kinds with equal orders share one array. */
export type StreamOrders = Readonly<Record<PassKind, readonly StreamedPiece[]>>;

/** A piece whose read has begun. */
interface Entry {
  readonly streamed: StreamedPiece;
  readonly order: readonly StreamedPiece[];
  readonly pass: number;
  readonly slot: number;
  readonly span: Span;
  readonly read: Promise<void>;
}

/** A piece that has landed. `release` must be called with the end of the ops that read it. */
export interface LandedPiece {
  readonly span: Span;
  release(done: Promise<void>): void;
}

/**
 * Reads pieces ahead of their use into a few staging slots, in the order in which a forward pass uses them, through
 * the end of a pass into the next one. A slot is read into again as soon as the ops that use it are done, so reading
 * and computing overlap.
 */
export class DenseStream {
  readonly #mover: WeightMover;
  readonly #orders: StreamOrders;
  readonly #slots: readonly Span[];
  #free: number[];
  #ready: Entry[] = [];
  readonly #inUse = new Set<Promise<void>>();
  /** The next piece to read. */
  #readOrder: readonly StreamedPiece[] = [];
  #readIndex = 0;
  #readPass = 0;
  /** The pass being computed, and what is expected behind it. */
  #pass = 0;
  #order: readonly StreamedPiece[] = [];
  #expected: PassKind | null = null;
  #stopped = true;
  #failure: unknown = null;
  #waitNs = 0n;
  #usedPieces = 0;
  #usedBytes = 0;
  #droppedBytes = 0;

  constructor(mover: WeightMover, orders: StreamOrders, staging: Span, slotBytes: number) {
    this.#mover = mover;
    this.#orders = orders;
    const count = Math.floor(staging.byteLength / slotBytes);
    this.#slots = Array.from({ length: count }, (_, slot) => subspan(staging, slot * slotBytes, slotBytes));
    this.#free = [...this.#slots.keys()];
  }

  get stats(): { waitNs: bigint; pieces: number; usedBytes: number; droppedBytes: number } {
    return {
      waitNs: this.#waitNs,
      pieces: this.#usedPieces,
      usedBytes: this.#usedBytes,
      droppedBytes: this.#droppedBytes,
    };
  }

  /** Begins reading for a pass; pieces that were read ahead for it stay. `next` is the pass expected behind it. */
  begin(pass: number, kind: PassKind, next: PassKind | null): void {
    const order = this.#orders[kind];
    this.#pass = pass;
    this.#order = order;
    this.#expected = next;
    this.#failure = null;
    this.#stopped = false;
    this.#drop((entry) => entry.pass !== pass || entry.order !== order);
    if (this.#readPass !== pass || this.#readOrder !== order) this.#readFrom(pass, order, 0);
    this.#fill();
  }

  /** Changes what is expected behind the pass that is running. */
  expect(next: PassKind | null): void {
    this.#expected = next;
    this.#fill();
  }

  /** Waits for a piece. Pieces that come before it in the order and were not asked for are dropped. */
  async take(matrix: StreamedMatrix, piece: Piece): Promise<LandedPiece> {
    const wanted = ({ streamed, pass }: Entry) =>
      pass === this.#pass && streamed.matrix === matrix && streamed.piece === piece;
    const position = this.#ready.findIndex(wanted);
    if (position >= 0) {
      const skipped = new Set(this.#ready.slice(0, position));
      this.#drop((entry) => skipped.has(entry));
    } else {
      await this.#seek(matrix, piece);
    }
    const entry = this.#ready.shift();
    if (entry === undefined || !wanted(entry)) {
      throw new DefectError(`Cannot stream "${matrix.description.id}": its read was not begun`);
    }
    const began = process.hrtime.bigint();
    try {
      await entry.read;
    } catch (error) {
      this.#stopped = true;
      this.#failure ??= error;
      this.#free.push(entry.slot);
      throw error;
    } finally {
      this.#waitNs += process.hrtime.bigint() - began;
    }
    this.#usedPieces += 1;
    this.#usedBytes += piece.byteLength;
    return { span: entry.span, release: (done) => this.#release(entry.slot, done) };
  }

  /** Forgets everything that was read ahead; resolves when no read is running. Ops in flight must have ended. */
  async reset(): Promise<void> {
    this.#stopped = true;
    this.#expected = null;
    const reads = this.#ready.map(({ read }) => read);
    this.#drop(() => true);
    await Promise.allSettled(reads);
    await Promise.allSettled(this.#inUse);
    this.#free = [...this.#slots.keys()];
    this.#readPass = 0;
    this.#readOrder = [];
    this.#readIndex = 0;
  }

  async #seek(matrix: StreamedMatrix, piece: Piece): Promise<void> {
    const order = this.#order;
    const index = order.findIndex((streamed) => streamed.matrix === matrix && streamed.piece === piece);
    if (index < 0)
      throw new DefectError(`Cannot stream "${matrix.description.id}": it is not in the order of use`);
    this.#drop(() => true);
    this.#readFrom(this.#pass, order, index);
    this.#fill();
    // Slots still used by ops, or by reads of dropped pieces, come free and are filled by themselves.
    while (this.#ready.length === 0) {
      if (this.#failure !== null) throw this.#failure;
      if (this.#inUse.size === 0) throw new DefectError('Cannot stream: every staging slot is taken');
      await Promise.race(this.#inUse);
    }
  }

  #readFrom(pass: number, order: readonly StreamedPiece[], index: number): void {
    this.#readPass = pass;
    this.#readOrder = order;
    this.#readIndex = index;
  }

  /** Begins reads while slots are free and it is known what comes. */
  #fill(): void {
    while (!this.#stopped && this.#free.length > 0) {
      if (this.#readIndex === this.#readOrder.length) {
        if (this.#readPass !== this.#pass || this.#expected === null) return;
        this.#readFrom(this.#pass + 1, this.#orders[this.#expected], 0);
        continue;
      }
      this.#read(this.#readOrder[this.#readIndex]!, this.#free.shift()!);
      this.#readIndex += 1;
    }
  }

  #read(streamed: StreamedPiece, slot: number): void {
    const { matrix, piece } = streamed;
    const span = subspan(this.#slots[slot]!, 0, piece.byteLength);
    const read = this.#mover.move(
      {
        cause: 'dense-weights',
        layer: matrix.description.layer,
        id: matrix.description.id,
        rows: piece.rowEnd - piece.rowBegin,
        pass: this.#readPass,
      },
      [pieceRegion(matrix, piece, span)],
    );
    read.catch(() => {}); // surfaces where the piece is taken
    this.#ready.push({ streamed, order: this.#readOrder, pass: this.#readPass, slot, span, read });
  }

  /** Gives up entries; their slots come free when their reads have ended. */
  #drop(which: (entry: Entry) => boolean): void {
    const dropped = this.#ready.filter(which);
    if (dropped.length === 0) return;
    this.#ready = this.#ready.filter((entry) => !dropped.includes(entry));
    for (const { slot, read, span } of dropped) {
      this.#droppedBytes += span.byteLength;
      this.#release(
        slot,
        read.catch(() => {}),
      );
    }
  }

  #release(slot: number, done: Promise<void>): void {
    const freed = done.then(
      () => {
        this.#free.push(slot);
      },
      (error: unknown) => {
        this.#free.push(slot);
        this.#stopped = true; // the pass has failed; reading on would be for nothing
        this.#failure ??= error;
      },
    );
    this.#inUse.add(freed);
    void freed.then(() => {
      this.#inUse.delete(freed);
      this.#fill();
    });
  }
}
