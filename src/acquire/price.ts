import type { QuantisedType } from '../base/quantised-type.js';
import type { PlacedMatrix, Placement } from './placement.js';
import { directPaths, isRowPath } from './policy.js';

/** What a machine was measured to do; see `measureRates`. Bytes are per second. */
export interface MachineRates {
  /** Weights in long pieces, and rows of active neurons, over the link. */
  readonly denseBytesPerSecond: number;
  readonly rowBytesPerSecond: number;
  /** Weights that a product of one row reads from where it computes, in matrices of the model's sizes. */
  readonly computeBytesPerSecond: number;
  /** Low-bit copies, as certificates read them for one row. */
  readonly certifyBytesPerSecond: number;
  /** Quantised weights in a product of one row; absent where nothing asked for them. */
  readonly quantisedBytesPerSecond?: Readonly<Record<QuantisedType, number>>;
  /** An op on a few thousand numbers, among others of a submission. */
  readonly smallOpSeconds: number;
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

/** Ops of a layer beside its products, each a walk over a few thousand numbers: norms, stores, attention, activation. */
const smallOpsPerLayer = 9;
/** A set of active rows is found, and its slots are written, before a product uses it. */
const smallOpsPerActiveSet = 2;

/**
 * Expected time of a decode token under a placement, at short contexts: what attention reads of the cache is left out.
 * Streamed pieces are read beside the computation; rows of active neurons are waited for, unless ops read them themselves.
 */
export function priceToken(placement: Placement, rates: MachineRates, hostTier: boolean): TokenPrice {
  const { moved, matrices, forecast, policy } = placement;
  const layers = new Set(matrices.map(({ layer }) => layer)).size;
  const sets = matrices.filter(
    ({ paths }) => paths.decode === 'resident-sparse' || isRowPath(paths.decode),
  ).length;
  const compute =
    matrices.reduce((sum, matrix) => sum + readSeconds(matrix, moved.activeShare, rates), 0) +
    (layers * smallOpsPerLayer + sets * smallOpsPerActiveSet) * rates.smallOpSeconds;
  const extents = policy === 'extents' ? moved.expectedPacketBytes : 0;
  const dense = (moved.denseDecodeBytes + extents) / rates.denseBytesPerSecond;
  const rows = (moved.expectedPacketBytes - extents + moved.embeddingBytes) / rates.rowBytesPerSecond;
  // Sets that ops read themselves from host memory stay on the device.
  const toHost = matrices.filter(
    ({ arena, paths }) => arena !== null && !(hostTier && directPaths.has(paths.decode)),
  ).length;
  const host = (1 + 2 * toHost) * rates.roundTripSeconds + rates.logitsSeconds;
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

/** What a decode token computes with the bytes of a matrix. */
function readSeconds(
  { paths, bytes, certificate }: PlacedMatrix,
  activeShare: number,
  rates: MachineRates,
): number {
  const { computeBytesPerSecond, certifyBytesPerSecond, quantisedBytesPerSecond } = rates;
  const certified = certificate === undefined ? 0 : certificate.bytes / certifyBytesPerSecond;
  switch (paths.decode) {
    case 'resident':
    case 'streamed':
      return certified + bytes / computeBytesPerSecond;
    case 'q8':
    case 'q4': {
      const measured = quantisedBytesPerSecond?.[paths.decode];
      return bytes / (measured ?? computeBytesPerSecond / quantisedCost[paths.decode]);
    }
    default:
      return certified + (bytes * activeShare) / computeBytesPerSecond;
  }
}

/** Where it was not measured: time of a byte of codes against a byte of weights; unpacking bounds it, not memory. */
const quantisedCost = { q8: 1.6, q4: 2.8 } as const;
