import type { StreamedMatrix } from '../acquire/bound-matrix.js';
import type { WeightMover } from '../acquire/executor.js';
import type { MachineRates } from '../acquire/machine-rates.js';
import { smallestPieceBytes, storedRowBytes, storedRows } from '../acquire/pieces.js';
import type { DeviceRates } from '../backend/backend.js';
import { blockInputs } from '../backend/ops.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { type RowBench, rowRates } from './row-rates.js';
import { leastOf, piecesOf, type StreamBench, stream, streamRates } from './stream-rates.js';

/** What moving weights takes, and what of it hides. */
export type MovingRates = Pick<
  MachineRates,
  | 'denseBytesPerSecond'
  | 'rowBytesPerSecond'
  | 'rowStartSeconds'
  | 'extentBytesPerSecond'
  | 'directRows'
  | 'pieceSeconds'
  | 'pieceGapSeconds'
  | 'wakeSeconds'
  | 'overlapShare'
>;

/** Where moving is measured. */
export interface MovingBench extends StreamBench {
  readonly prepared: PreparedModel;
  readonly activeShare: number;
}

const mebibyte = 1024 * 1024;
/** As pieces of streamed matrices are at most; on a device so many that the link is what takes time. */
export const pieceBytes = 8 * mebibyte;
const devicePieceBytes = 4 * mebibyte;
export const stagingSlots = 4;
const devicePieces = 16;
/** As plans queue them there. */
const deviceSlots = 16;
/** Few enough for a disk that is slow. */
const readPieces = 8;
/** Of one matrix, in host memory that a device can reach. */
const mirrorBytes = 32 * mebibyte;

/** Reads of the prepared file, in the calls that passes make. */
export async function ratesFromFile(bench: MovingBench, computeBytesPerSecond: number): Promise<MovingRates> {
  const { first, middle, last } = secondProjections(bench.prepared);
  const { size, slots } = stagedAs(bench, pieceBytes, last);
  const pieces = piecesOf([last, middle, first], size, readPieces);
  const cold = await stream(bench, pieces, slots, size, false);
  const rows = await rowRates([rowsOf(bench, first), rowsOf(bench, middle)], bench.activeShare);
  const small = await streamRates(bench, last, stagingSlots);
  // Again, now from the page cache: overlap is in doubt where reading takes a processor.
  const warm = await leastOf(() => stream(bench, pieces, slots, size, false));
  const both = await leastOf(() => stream(bench, pieces, slots, size, true));
  // The first piece is read, and the last one computed with, beside nothing.
  const computeSeconds = warm.bytes / computeBytesPerSecond;
  const beside = Math.min(computeSeconds, warm.seconds) * (1 - 1 / Math.max(2, pieces.length));
  const hidden = (computeSeconds + warm.seconds - both.seconds) / beside;
  const overlapShare = Math.max(0, Math.min(1, hidden));
  // Reading and computing take the same processors as the host does: what is left of small pieces is a piece's own.
  const [read, computed] = [(small.bytes * warm.seconds) / warm.bytes, small.bytes / computeBytesPerSecond];
  const alone = small.pieceSeconds - read - computed + overlapShare * Math.min(read, computed);
  const pieceGapSeconds = Math.max(0, alone);
  const gaps = Math.min(pieceGapSeconds * pieces.length, cold.seconds / 2);
  return {
    denseBytesPerSecond: cold.bytes / (cold.seconds - gaps),
    ...rows,
    wakeSeconds: small.wakeSeconds,
    pieceSeconds: 0,
    pieceGapSeconds,
    overlapShare,
  };
}

/** What comes to a device: copied by its engine from host memory that it can reach, which a part of a matrix is given. */
export async function ratesFromMirror(bench: MovingBench, device: DeviceRates): Promise<MovingRates> {
  const { backend, prepared } = bench;
  const matrix = secondProjections(prepared).first.cutTo(mirrorBytes);
  const { filePosition, byteLength } = matrix;
  const request = { label: 'rates', cause: 'workspace', byteLength } as const;
  const mirror = await backend.hostTier!.mirror(prepared.weightsFile, filePosition, request);
  try {
    const { size, slots } = stagedAs(bench, devicePieceBytes, matrix);
    const pieces = piecesOf([matrix], size, devicePieces);
    const rows = await rowRates([rowsOf(bench, matrix)], bench.activeShare);
    const long = await leastOf(() => stream(bench, pieces, slots, size, true));
    const { pieceSeconds, wakeSeconds } = await streamRates(bench, matrix, deviceSlots);
    const { denseBytesPerSecond, rowBytesPerSecond, rowSet } = device;
    return {
      ...rows,
      denseBytesPerSecond,
      directRows: rowSet ?? { seconds: 0, bytesPerSecond: rowBytesPerSecond },
      pieceSeconds,
      wakeSeconds,
      pieceGapSeconds: Math.max(0, (long.seconds - long.bytes / denseBytesPerSecond) / pieces.length),
      overlapShare: 1,
    };
  } finally {
    backend.release(mirror);
  }
}

/** As a plan stages pieces, as far as there is room for them. */
function stagedAs(
  { staging }: StreamBench,
  most: number,
  { least }: Stored,
): { size: number; slots: number } {
  const size = Math.max(Math.min(most, Math.floor(staging.byteLength / stagingSlots)), least);
  return { size, slots: Math.max(1, Math.min(stagingSlots, Math.floor(staging.byteLength / size))) };
}

function rowsOf(
  { mover, staging }: { mover: WeightMover; staging: RowBench['arena'] },
  { description, filePosition }: Stored,
): RowBench {
  const [rows, rowBytes] = [storedRows(description), storedRowBytes(description)];
  return { mover, description, filePosition, rowBytes, rows, arena: staging };
}

/** Three of them, the same ones where a model has few layers. */
function secondProjections({ description, tensor }: PreparedModel) {
  const all = description.matrices.filter(({ role }) => role === 'second');
  const at = (index: number) => new Stored(all[index]!, tensor(all[index]!.id).byteOffset);
  return { first: at(0), middle: at(all.length >> 1), last: at(all.length - 1) };
}

/** A matrix of input-major rows as it lies in the prepared file. */
class Stored implements StreamedMatrix {
  readonly description: MatrixDescription;
  readonly filePosition: number;
  readonly strided = false;

  constructor(description: MatrixDescription, filePosition: number) {
    this.description = description;
    this.filePosition = filePosition;
  }

  get byteLength(): number {
    return storedRows(this.description) * storedRowBytes(this.description);
  }

  /** Of the smallest piece. */
  get least(): number {
    return smallestPieceBytes(this.description);
  }

  /** Its first blocks of rows, one at least. */
  cutTo(limitBytes: number): Stored {
    if (this.byteLength <= limitBytes) return this;
    const blocks = Math.max(1, Math.floor(limitBytes / storedRowBytes(this.description) / blockInputs));
    return new Stored({ ...this.description, inputs: blocks * blockInputs }, this.filePosition);
  }
}
