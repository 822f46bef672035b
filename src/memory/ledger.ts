import { DefectError } from '../base/errors.js';
import { type HoldCause, holdCauses, type MoveCause, moveCauses } from './causes.js';

/** Where bytes lie. CPU: `disk` is the prepared file, `ram` what a backend holds, `host` what JavaScript sees. */
export type Tier = 'disk' | 'ram' | 'host' | 'device';

/** What a move was for and where it went, for the trace. */
export interface MoveDetails {
  readonly layer: number | null;
  /** Tensor, or what was read back. */
  readonly id: string;
  /** Separate regions of the file, or copies. */
  readonly regions: number;
  readonly from: Tier;
  readonly to: Tier;
  /** Forward pass that it serves, counted from 1; 0 before the first. */
  readonly pass: number;
}

/** Bytes that cross from one tier to another, for one cause. */
export interface Move extends MoveDetails {
  readonly cause: MoveCause;
  readonly bytes: number;
  /** Stored rows of weights, entries of an active set, or rows of logits. */
  readonly rows: number;
}

/** Bytes by cause, for records and receipts. */
export interface LedgerTotals {
  readonly moved: Readonly<Record<MoveCause, number>>;
  readonly movedRows: Readonly<Record<MoveCause, number>>;
  readonly held: Readonly<Record<HoldCause, number>>;
  readonly heldPeak: Readonly<Record<HoldCause, number>>;
  readonly totalHeld: number;
  readonly totalHeldPeak: number;
}

/** The only counter of bytes: one object a session. Moves are charged when they are asked for. */
export class Ledger {
  readonly #moved = zeros(moveCauses);
  readonly #movedRows = zeros(moveCauses);
  readonly #held = zeros(holdCauses);
  readonly #heldPeak = zeros(holdCauses);
  #totalHeld = 0;
  #totalHeldPeak = 0;
  readonly #onMove: ((move: Move) => void) | null;

  /** `onMove` sees every move as it is charged; `MoveTrace.record` is made for it. */
  constructor(onMove: ((move: Move) => void) | null = null) {
    this.#onMove = onMove;
  }

  /** Forward passes begun so far; the weight source counts them. */
  pass = 0;

  get totalHeld(): number {
    return this.#totalHeld;
  }

  /** Charges a move. Without details it is a read-back from the backend to JavaScript in the current pass. */
  move(cause: MoveCause, bytes: number, rows: number, details: Partial<MoveDetails> = {}): void {
    requireCount(bytes, 'bytes moved');
    requireCount(rows, 'rows moved');
    this.#moved[cause] += bytes;
    this.#movedRows[cause] += rows;
    if (this.#onMove === null) return;
    const { layer = null, id = cause, regions = 1, from = 'ram', to = 'host', pass = this.pass } = details;
    this.#onMove({ cause, bytes, rows, layer, id, regions, from, to, pass });
  }

  hold(cause: HoldCause, bytes: number): void {
    requireCount(bytes, 'bytes held');
    this.#held[cause] += bytes;
    this.#totalHeld += bytes;
    this.#heldPeak[cause] = Math.max(this.#heldPeak[cause], this.#held[cause]);
    this.#totalHeldPeak = Math.max(this.#totalHeldPeak, this.#totalHeld);
  }

  release(cause: HoldCause, bytes: number): void {
    requireCount(bytes, 'bytes released');
    if (bytes > this.#held[cause]) {
      throw new DefectError(`Cannot release ${bytes} bytes of "${cause}": ${this.#held[cause]} are held`);
    }
    this.#held[cause] -= bytes;
    this.#totalHeld -= bytes;
  }

  /** A frozen copy of all counters. */
  totals(): LedgerTotals {
    return Object.freeze({
      moved: Object.freeze({ ...this.#moved }),
      movedRows: Object.freeze({ ...this.#movedRows }),
      held: Object.freeze({ ...this.#held }),
      heldPeak: Object.freeze({ ...this.#heldPeak }),
      totalHeld: this.#totalHeld,
      totalHeldPeak: this.#totalHeldPeak,
    });
  }
}

/** What moved between two totals of one ledger; what is held, and the peaks, are those of the later one. */
export function differenceOf(later: LedgerTotals, earlier: LedgerTotals): LedgerTotals {
  const moved = zeros(moveCauses);
  const movedRows = zeros(moveCauses);
  for (const cause of moveCauses) {
    moved[cause] = later.moved[cause] - earlier.moved[cause];
    movedRows[cause] = later.movedRows[cause] - earlier.movedRows[cause];
    if (moved[cause] < 0 || movedRows[cause] < 0) {
      throw new RangeError(`Cannot subtract ledger totals: "${cause}" moved less in the later one`);
    }
  }
  return Object.freeze({ ...later, moved: Object.freeze(moved), movedRows: Object.freeze(movedRows) });
}

function zeros<Cause extends string>(causes: readonly Cause[]): Record<Cause, number> {
  return Object.fromEntries(causes.map((cause) => [cause, 0])) as Record<Cause, number>;
}

function requireCount(value: number, what: string): void {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new DefectError(`Cannot charge ${value} ${what}: a count is a non-negative integer`);
  }
}
