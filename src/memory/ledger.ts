import { DefectError } from '../base/errors.js';
import { type HoldCause, holdCauses, type MoveCause, moveCauses } from './causes.js';

/** Where bytes lie. CPU: `disk` is the prepared file, `ram` what a backend holds, `host` what JavaScript sees. */
export type Tier = 'disk' | 'ram' | 'host' | 'device';

/** Bytes that cross from one tier to another, for one cause. */
export interface Move {
  readonly cause: MoveCause;
  readonly bytes: number;
  /** Stored rows of weights, entries of an active set, or rows of logits. */
  readonly rows: number;
  /** Separate regions of the file, or copies. */
  readonly regions: number;
  readonly layer: number | null;
  /** Tensor, or what was read back. */
  readonly id: string;
  readonly from: Tier;
  readonly to: Tier;
  /** Forward pass that it serves, counted from 1; 0 before the first. */
  readonly pass: number;
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

  get totalHeld(): number {
    return this.#totalHeld;
  }

  move(move: Move): void {
    requireCount(move.bytes, 'bytes moved');
    requireCount(move.rows, 'rows moved');
    this.#moved[move.cause] += move.bytes;
    this.#movedRows[move.cause] += move.rows;
    this.#onMove?.(move);
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
  snapshot(): LedgerTotals {
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

/** What moved between two snapshots of one ledger; what is held, and the peaks, are those of the later one. */
export function ledgerDifference(later: LedgerTotals, earlier: LedgerTotals): LedgerTotals {
  const moved = zeros(moveCauses);
  const movedRows = zeros(moveCauses);
  for (const cause of moveCauses) {
    moved[cause] = later.moved[cause] - earlier.moved[cause];
    movedRows[cause] = later.movedRows[cause] - earlier.movedRows[cause];
    if (moved[cause] < 0 || movedRows[cause] < 0) {
      throw new RangeError(`Cannot subtract snapshots: "${cause}" moved less in the later one`);
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
