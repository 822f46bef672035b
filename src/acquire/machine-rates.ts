import type { QuantisedType } from '../base/quantised-type.js';

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
  /** Host work on an op where passes do not repeat: on each of the first of a submission, and on each further one. */
  readonly opSeconds: number;
  readonly moreOpSeconds: number;
  /** Host work on a piece that is streamed. */
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

/** Ops of a submission that are the first: as many as lie between two products whose weights have to come. */
export const firstOps = 6;
