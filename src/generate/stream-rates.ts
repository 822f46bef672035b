import { pieceOp, type StreamedMatrix } from '../acquire/bound-matrix.js';
import { DenseStream, type StreamedPiece } from '../acquire/dense-stream.js';
import type { WeightMover } from '../acquire/executor.js';
import { cutIntoPieces, smallestPieceBytes } from '../acquire/pieces.js';
import type { Backend } from '../backend/backend.js';
import { Pass } from '../backend/pass.js';
import { type Span, subspan } from '../memory/buffers.js';

/** What streaming costs beside the bytes that it moves. */
export interface StreamRates {
  /** Host work on a piece: its transfer, its submission, waiting for both. */
  readonly pieceSeconds: number;
  /** From the end of a transfer, or of a submission, until the host goes on behind it. */
  readonly wakeSeconds: number;
}

/** As it was measured: all that small pieces take, and their size. */
export interface SmallPieces extends StreamRates {
  readonly bytes: number;
}

/** Where streams are measured. */
export interface StreamBench {
  readonly backend: Backend;
  readonly mover: WeightMover;
  readonly staging: Span;
  readonly x: Span; // F32, as many as the widest input
  readonly out: Span; // F32, as many as the widest output
}

/** What a stream has moved, in seconds from its first read to the last op behind one. */
export interface Streamed {
  readonly seconds: number;
  readonly bytes: number;
  readonly pieces: number;
}

/** Of pieces that move so fast that the host is what takes time. */
const smallPieces = 32;

export async function streamRates(
  bench: StreamBench,
  matrix: StreamedMatrix,
  slots: number,
): Promise<SmallPieces> {
  const size = smallestPieceBytes(matrix.description);
  const most = Math.floor(bench.staging.byteLength / size);
  const small = piecesOf([matrix], size, smallPieces);
  const timed = async (wanted: number) => {
    const { seconds, bytes, pieces } = await leastOf(() =>
      stream(bench, small, Math.max(1, Math.min(wanted, most)), size, true),
    );
    return { pieceSeconds: seconds / pieces, bytes: bytes / pieces };
  };
  const alone = await timed(1);
  const several = await timed(slots); // last: by then the host's code has settled
  return { ...several, wakeSeconds: Math.max(0, alone.pieceSeconds - several.pieceSeconds) / 2 };
}

/** The host's code settles in some hundred pieces, which takes longer than they do then. */
const settlingNs = 80_000_000n;
const fewestTurns = 3;
const mostTurns = 40;

/** The shortest of as many turns as fit a moment. */
export async function leastOf(turn: () => Promise<Streamed>): Promise<Streamed> {
  const began = process.hrtime.bigint();
  let least = await turn();
  for (let turns = 1; turns < mostTurns; turns += 1) {
    if (turns >= fewestTurns && process.hrtime.bigint() - began > settlingNs) break;
    const next = await turn();
    if (next.seconds < least.seconds) least = next;
  }
  return least;
}

/** The first pieces of matrices, in the order of use. */
export function piecesOf(matrices: readonly StreamedMatrix[], size: number, most: number): StreamedPiece[] {
  return matrices
    .flatMap((matrix) => {
      const limit = Math.max(size, smallestPieceBytes(matrix.description));
      return cutIntoPieces(matrix.description, limit).map((piece) => ({ matrix, piece }));
    })
    .slice(0, most);
}

/** Streams pieces as a pass does, with the product of each, or without. */
export async function stream(
  { backend, mover, staging, x, out }: StreamBench,
  order: readonly StreamedPiece[],
  slots: number,
  slotBytes: number,
  computes: boolean,
): Promise<Streamed> {
  const room = subspan(staging, 0, slots * slotBytes);
  const pieces = new DenseStream(mover, { prefill: order, decode: order }, room, slotBytes);
  const pass = new Pass(backend);
  let bytes = 0;
  const began = process.hrtime.bigint();
  try {
    pieces.begin(1, 'decode', null);
    for (const { matrix, piece } of order) {
      void pass.flush();
      const landed = await pieces.take(matrix, piece);
      bytes += piece.byteLength;
      if (computes) {
        const { id, inputs, outputs } = matrix.description;
        const request = {
          id,
          rows: 1,
          x: subspan(x, 0, 4 * inputs),
          out: subspan(out, 0, 4 * outputs),
          residual: null,
        };
        pass.emit(id, pieceOp({ ...matrix, bias: null }, request, landed.span, piece));
      }
      landed.release(pass.flush());
    }
    await pass.flush();
    return {
      seconds: Number(process.hrtime.bigint() - began) / 1e9,
      bytes,
      pieces: order.length,
    };
  } finally {
    await pieces.reset();
  }
}
