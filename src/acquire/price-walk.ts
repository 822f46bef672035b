import { firstOps, type MachineRates } from './machine-rates.js';
import type { PlacedMatrix, Placement } from './placement.js';
import { directPaths, isRowPath } from './policy.js';

/** Seconds of a pass by what they go to, as if one thing were done behind another. */
export interface Spent {
  compute: number;
  dense: number;
  rows: number;
  host: number;
  /** Of the rows, those that come beside what is computed. */
  beside: number;
}

function nothing(): Spent {
  return { compute: 0, dense: 0, rows: 0, host: 0, beside: 0 };
}

/** Where nothing was measured: time of a byte of codes against a byte of weights; unpacking bounds it, not memory. */
const quantisedCost = { q8: 1.6, q4: 2.8 } as const;
/** Ops of a layer, of a streamed piece, of a certificate, of a set of rows: what the host submits where nothing repeats. */
const opsOfLayer = 6;
const opsOfCertificate = 2;
const opsOfSet = 2;

/**
 * Goes through decode passes matrix by matrix, as `PlacedSource` does. All times are seconds on one clock: when the host goes
 * on, when all that was submitted has run, when the link is free.
 */
export class TokenWalk {
  /** Of the last pass. */
  spent: Spent = nothing();
  readonly #placement: Placement;
  readonly #rates: MachineRates;
  readonly #hostTier: boolean;
  /** Whether a pass is one submission that was recorded before. */
  readonly #repeats: boolean;
  /** Of all rows that are moved alone, a byte of their matrices each. */
  readonly #movedShare: number;
  readonly #pieces: readonly number[]; // seconds on the link
  #host = 0;
  #device = 0;
  #link = 0;
  #queued = 0; // seconds of ops that were not submitted yet
  #queuedOps = 0;
  #beside = 0; // seconds of ops since the last rows that an op has read from the host
  /** By number from the first pass on: when a piece has landed, when the ops on it are done. */
  readonly #landed: number[] = [];
  readonly #used: number[] = [];
  /** When the guessed rows of a matrix have landed. */
  readonly #guessed = new Map<PlacedMatrix, number>();

  constructor(placement: Placement, rates: MachineRates, hostTier: boolean) {
    this.#placement = placement;
    this.#rates = rates;
    this.#hostTier = hostTier;
    const { matrices, moved, tables } = placement;
    const fed = matrices.filter(({ paths }) => isRowPath(paths.decode));
    const fedBytes = fed.reduce((sum, { bytes }) => sum + bytes, 0);
    this.#movedShare = fedBytes === 0 ? 0 : moved.expectedPacketBytes / fedBytes;
    this.#pieces = matrices.flatMap((matrix) =>
      matrix.paths.decode === 'streamed' ? this.#cut(matrix).map((bytes) => this.#linkSeconds(bytes)) : [],
    );
    this.#repeats =
      this.#pieces.length === 0 &&
      fed.every((matrix) => this.#isDirect(matrix)) &&
      tables.every(({ path }) => path !== 'rows');
  }

  /** Walks through one pass more; when it has ended. */
  pass(): number {
    const { matrices, moved, tables } = this.#placement;
    const { rowStartSeconds, rowBytesPerSecond, outsideSeconds, roundTripSeconds, logitsSeconds } =
      this.#rates;
    this.spent = nothing();
    if (tables.some(({ path }) => path === 'rows')) {
      this.#wait(rowStartSeconds + moved.embeddingBytes / rowBytesPerSecond, 'rows');
    }
    let layer: number | null = null;
    for (const matrix of matrices) {
      if (matrix.layer !== layer && matrix.layer !== null) this.#enterLayer(matrix.layer);
      layer = matrix.layer;
      this.#walk(matrix);
    }
    this.#compute(outsideSeconds, opsOfLayer);
    this.#submit();
    this.#host = Math.max(this.#host, this.#device);
    this.#wait(roundTripSeconds + logitsSeconds, 'host');
    return this.#host;
  }

  #enterLayer(layer: number): void {
    const { forecast, matrices } = this.#placement;
    if (forecast === 'early') {
      for (const matrix of matrices) {
        if (matrix.layer !== layer || matrix.paths.decode !== 'forecast' || this.#isDirect(matrix)) continue;
        this.#wait(this.#rates.rowStartSeconds, 'rows');
        this.#link = Math.max(this.#link, this.#host) + this.#rowSeconds(this.#guessBytes(matrix));
        this.#guessed.set(matrix, this.#link);
      }
    }
    this.#compute(this.#rates.layerSeconds, opsOfLayer);
  }

  #walk(matrix: PlacedMatrix): void {
    const { bytes, paths, certificate } = matrix;
    const rates = this.#rates;
    if (certificate !== undefined)
      this.#compute(certificate.bytes / rates.certifyBytesPerSecond, opsOfCertificate);
    switch (paths.decode) {
      case 'resident':
        this.#compute(bytes / rates.computeBytesPerSecond, 1);
        return;
      case 'resident-sparse':
        this.#compute(this.#activeSeconds(bytes * this.#placement.moved.activeShare), opsOfSet);
        return;
      case 'q8':
      case 'q4': {
        const measured = rates.quantisedBytesPerSecond?.[paths.decode];
        this.#compute(bytes / (measured ?? rates.computeBytesPerSecond / quantisedCost[paths.decode]), 1);
        return;
      }
      case 'streamed':
        for (const piece of this.#cut(matrix)) this.#streamPiece(piece);
        return;
      default:
        if (this.#isDirect(matrix)) this.#readDirectly(matrix);
        else this.#feed(matrix);
    }
  }

  /** The op waits for the link by itself; guessed rows come on a stream beside the layer, or in front of the op. */
  #readDirectly(matrix: PlacedMatrix): void {
    const { directRows, rowStartSeconds, rowBytesPerSecond, denseBytesPerSecond } = this.#rates;
    const direct = directRows ?? { seconds: rowStartSeconds, bytesPerSecond: rowBytesPerSecond };
    const moved = matrix.bytes * this.#movedShare;
    // Pieces that are read ahead come over the same link.
    if (this.#pieces.length > 0) this.#link += moved / denseBytesPerSecond;
    let needed = moved;
    if (matrix.paths.decode === 'forecast') {
      const guessed = this.#guessBytes(matrix);
      const seconds = direct.seconds + guessed / direct.bytesPerSecond;
      needed -= guessed;
      this.spent.rows += seconds;
      if (this.#placement.forecast === 'early') this.spent.beside += seconds;
      this.#queued += this.#placement.forecast === 'early' ? Math.max(0, seconds - this.#beside) : seconds;
    }
    this.#compute(direct.seconds + needed / direct.bytesPerSecond, opsOfSet, 'rows');
    this.#beside = 0;
  }

  /** The host sees the active set, and brings the rows. */
  #feed(matrix: PlacedMatrix): void {
    const { bytes, paths } = matrix;
    const { rowStartSeconds, extentBytesPerSecond, computeBytesPerSecond, wakeSeconds } = this.#rates;
    const { roundTripSeconds, readSeconds } = this.#rates;
    this.#submit();
    this.#host = Math.max(this.#host, this.#device);
    this.#wait(roundTripSeconds + readSeconds, 'host'); // its size, then its list
    let moved = bytes * this.#movedShare;
    if (paths.decode === 'forecast') {
      const guess = this.#guessBytes(matrix);
      const landing = this.#guessed.get(matrix);
      this.spent.rows += this.#rowSeconds(guess);
      if (landing !== undefined) this.spent.beside += this.#rowSeconds(guess);
      if (landing === undefined) this.#host += rowStartSeconds + this.#rowSeconds(guess);
      else this.#host = Math.max(this.#host, landing + wakeSeconds);
      moved -= guess;
    }
    const seconds = paths.decode === 'extents' ? moved / extentBytesPerSecond : this.#rowSeconds(moved);
    if (moved > 0) this.#wait(rowStartSeconds + seconds, 'rows');
    const scattered = paths.decode === 'staged' ? (2 * moved) / computeBytesPerSecond : 0;
    this.#compute(this.#activeSeconds(bytes * this.#placement.moved.activeShare) + scattered, opsOfSet);
  }

  #streamPiece(bytes: number): void {
    const { pieceSeconds, wakeSeconds, computeBytesPerSecond } = this.#rates;
    this.#submit();
    const index = this.#used.length;
    this.#readAhead(index);
    this.#host = Math.max(this.#host, this.#landed[index]! + wakeSeconds);
    this.spent.dense += this.#pieces[index % this.#pieces.length]!;
    this.#wait(pieceSeconds, 'host');
    this.#compute(bytes / computeBytesPerSecond, 0);
    this.#submit();
    this.#used.push(Math.max(this.#device, this.#host));
  }

  /** Reads begin as slots come free, in the order of use. */
  #readAhead(index: number): void {
    const slots = this.#placement.staging?.slots ?? 1;
    while (this.#landed.length < index + slots) {
      const next = this.#landed.length;
      const free = next < slots ? 0 : this.#used[next - slots]! + this.#rates.wakeSeconds;
      this.#link = Math.max(this.#link, free) + this.#pieces[next % this.#pieces.length]!;
      this.#landed.push(this.#link);
    }
  }

  /** Queues ops behind those that were queued before. */
  #compute(seconds: number, ops: number, kind: 'compute' | 'rows' = 'compute'): void {
    this.#queued += seconds;
    this.#queuedOps += ops;
    this.#beside += seconds;
    this.spent[kind] += seconds;
  }

  #submit(): void {
    const { opSeconds, moreOpSeconds } = this.#rates;
    const first = Math.min(firstOps, this.#queuedOps);
    const work = first * opSeconds + (this.#queuedOps - first) * moreOpSeconds;
    this.#wait(this.#repeats ? 0 : work, 'host');
    if (this.#queued > 0) this.#device = Math.max(this.#device, this.#host) + this.#queued;
    this.#queued = 0;
    this.#queuedOps = 0;
  }

  #wait(seconds: number, kind: 'host' | 'rows'): void {
    this.#host += seconds;
    this.spent[kind] += seconds;
  }

  #activeSeconds(bytes: number): number {
    return this.#rates.setSeconds + bytes / this.#rates.activeBytesPerSecond;
  }

  #rowSeconds(bytes: number): number {
    return bytes / this.#rates.rowBytesPerSecond;
  }

  #linkSeconds(bytes: number): number {
    return this.#rates.pieceGapSeconds + bytes / this.#rates.denseBytesPerSecond;
  }

  /** Guesses are as many rows as are active. */
  #guessBytes({ bytes }: PlacedMatrix): number {
    return bytes * Math.min(this.#movedShare, this.#placement.moved.activeShare);
  }

  /** Sets that ops read themselves from host memory stay where they are found; a learned guesser is the host's. */
  #isDirect({ paths }: PlacedMatrix): boolean {
    const { guesser } = this.#placement;
    return this.#hostTier && directPaths.has(paths.decode) && guesser === undefined;
  }

  /** Bytes of the pieces that a matrix comes in. */
  #cut({ bytes }: PlacedMatrix): number[] {
    const count = Math.ceil(bytes / (this.#placement.staging?.slotBytes ?? bytes));
    return Array.from({ length: count }, () => bytes / count);
  }
}
