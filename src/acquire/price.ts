import type { MachineRates } from './machine-rates.js';
import type { Placement } from './placement.js';
import { TokenWalk } from './price-walk.js';

export type { MachineRates } from './machine-rates.js';

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
