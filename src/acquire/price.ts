import type { QuantisedType } from '../base/quantised-type.js';
import type { Placement } from './placement.js';
import { TokenWalk } from './price-walk.js';

/** What a machine was measured to do; see `measureRates`. Bytes are per second. */
export interface MachineRates {
  /** Weights in long pieces over the link. */
  readonly denseBytesPerSecond: number;
  /** Rows of active neurons that the host brings, and what beginning to takes. */
  readonly rowBytesPerSecond: number;
  readonly rowStartSeconds: number;
  /** Blocks of 128 rows, several in one call. */
  readonly extentBytesPerSecond: number;
  /** Rows that ops read from the host themselves, with what a set of them takes; absent where none do. */
  readonly directRows?: { readonly seconds: number; readonly bytesPerSecond: number };
  /** Weights that a product of one row reads whole from where it computes, in matrices of the model's sizes. */
  readonly computeBytesPerSecond: number;
  /** Low-bit copies, as certificates read them for one row. */
  readonly certifyBytesPerSecond: number;
  /** Quantised weights in a product of one row; absent where nothing asked for them. */
  readonly quantisedBytesPerSecond?: Readonly<Record<QuantisedType, number>>;
  /** A layer beside its products: norms, stores, attention, activation. */
  readonly layerSeconds: number;
  /** A token beside its layers and the head's product. */
  readonly outsideSeconds: number;
  /** Finding an active set and starting the product over it; and rows of it that lie where the product computes. */
  readonly setSeconds: number;
  readonly activeBytesPerSecond: number;
  /** Host work: on an op that is in no submission recorded before, and on a piece that is streamed. */
  readonly opSeconds: number;
  readonly pieceSeconds: number;
  /** Between two pieces on the link. */
  readonly pieceGapSeconds: number;
  /** From the end of a transfer, or of a submission, until the host goes on behind it. */
  readonly wakeSeconds: number;
  /** Share of the shorter of moving and computing that hides behind the other where both run at once, 0 to 1. */
  readonly overlapShare: number;
  /** Until the host has what it submitted; and what it reads behind that. */
  readonly roundTripSeconds: number;
  readonly readSeconds: number;
  /** Host work on a row of logits. */
  readonly logitsSeconds: number;
}

/** Where the milliseconds of a decode token are expected to go. */
export interface TokenPrice {
  readonly computeMs: number;
  readonly denseMs: number;
  readonly rowsMs: number;
  /** What overlap hides, already taken from the total. */
  readonly hiddenMs: number;
  /** Submitting, waiting for what was submitted, and links that wait for the host. */
  readonly hostMs: number;
  readonly totalMs: number;
}

/** Passes until reading ahead repeats itself. */
const settling = 3;

/**
 * Expected time of a decode token under a placement: walks through a pass as a weight source does, with a clock each for
 * the host, for what computes and for the link. Streamed pieces are read ahead as far as there are slots, into the next
 * pass, too; rows of active neurons are waited for, unless ops read them themselves.
 */
export function priceToken(placement: Placement, rates: MachineRates, hostTier: boolean): TokenPrice {
  const walk = new TokenWalk(placement, rates, hostTier);
  let [before, now] = [0, 0];
  for (let pass = 0; pass < settling; pass += 1) {
    before = now;
    now = walk.pass();
  }
  const { compute, dense, rows, host, beside } = walk.spent;
  const serial = compute + dense + rows + host;
  const together = now - before;
  // A walk hides all that it can; of what computes beside what moves, the machine may hide less.
  const overlapped = Math.max(0, Math.min(serial - together, compute, dense + beside));
  const total = together + (1 - rates.overlapShare) * overlapped;
  const waited = Math.max(0, total - serial);
  const ms = (seconds: number) => seconds * 1000;
  return {
    computeMs: ms(compute),
    denseMs: ms(dense),
    rowsMs: ms(rows),
    hiddenMs: ms(serial + waited - total),
    hostMs: ms(host + waited),
    totalMs: ms(total),
  };
}
