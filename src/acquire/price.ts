import type { PlacedMatrix, Placement } from './placement.js';

/** What a machine was measured to do; see `measureRates`. Bytes are per second. */
export interface MachineRates {
  /** Weights in long pieces, and rows of active neurons, over the link. */
  readonly denseBytesPerSecond: number;
  readonly rowBytesPerSecond: number;
  /** Weights that a product of one row reads from where it computes. */
  readonly computeBytesPerSecond: number;
  /** Share of the shorter of moving and computing that hides behind the other where both run at once, 0 to 1. */
  readonly overlapShare: number;
  /** Until the host has what it submitted: each active set that comes to the host costs this twice. */
  readonly roundTripSeconds: number;
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
  readonly hostMs: number;
  readonly totalMs: number;
}

/** Ops of a layer beside its products, each a walk over a few thousand numbers and a barrier: stated, not measured. */
const smallOpsPerLayer = 9;
const smallOpSeconds = 2e-6;

/**
 * Expected time of a decode token under a placement, at short contexts: what attention reads of the cache is left out.
 * Streamed pieces are read beside the computation; rows of active neurons are waited for, unless ops read them themselves.
 */
export function priceToken(placement: Placement, rates: MachineRates, hostTier: boolean): TokenPrice {
  const { moved, matrices, forecast, policy } = placement;
  const layers = new Set(matrices.map(({ layer }) => layer)).size;
  const compute =
    matrices.reduce((sum, matrix) => sum + readBytes(matrix, moved.activeShare), 0) /
      rates.computeBytesPerSecond +
    layers * smallOpsPerLayer * smallOpSeconds;
  const extents = policy === 'extents' ? moved.expectedPacketBytes : 0;
  const dense = (moved.denseDecodeBytes + extents) / rates.denseBytesPerSecond;
  const rows = (moved.expectedPacketBytes - extents + moved.embeddingBytes) / rates.rowBytesPerSecond;
  const fed = matrices.filter(({ arena }) => arena !== null).length;
  const direct = hostTier && policy === 'packets';
  const host = (direct ? 0 : 2 * fed * rates.roundTripSeconds) + rates.logitsSeconds;
  const beside = moved.denseDecodeBytes / rates.denseBytesPerSecond + (forecast === 'early' ? rows / 2 : 0);
  const hidden = rates.overlapShare * Math.min(beside, compute);
  const total = compute + dense + rows + host - hidden;
  const ms = (seconds: number) => seconds * 1000;
  return {
    computeMs: ms(compute),
    denseMs: ms(dense),
    rowsMs: ms(rows),
    hiddenMs: ms(hidden),
    hostMs: ms(host),
    totalMs: ms(total),
  };
}

/** Bytes of a matrix that a decode token computes with. */
function readBytes({ paths, bytes }: PlacedMatrix, activeShare: number): number {
  switch (paths.decode) {
    case 'resident':
    case 'streamed':
      return bytes;
    case 'q8':
    case 'q4':
      return bytes * quantisedCost[paths.decode];
    default:
      return bytes * activeShare;
  }
}

/** Time of a byte of codes against a byte of weights: unpacking bounds it, not memory (bench/planner.mjs). */
const quantisedCost = { q8: 1.6, q4: 2.8 } as const;
