import type { HoldCause, MoveCause } from './causes.js';

/** Bytes by cause, for records and receipts. */
export interface LedgerTotals {
  readonly moved: Readonly<Record<MoveCause, number>>;
  readonly movedRows: Readonly<Record<MoveCause, number>>;
  readonly held: Readonly<Record<HoldCause, number>>;
  readonly heldPeak: Readonly<Record<HoldCause, number>>;
  readonly totalHeld: number;
  readonly totalHeldPeak: number;
}
