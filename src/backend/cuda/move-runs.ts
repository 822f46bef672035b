import { type Launch, launch } from './launch.js';

/** A piece of mapped host memory, and where on the device it is to land. */
export interface MovedRun {
  readonly source: number; // device address
  readonly target: number;
  readonly byteLength: number;
}

/** With the name of the buffer that it goes to, for errors. */
export interface LabelledRun extends MovedRun {
  readonly label: string;
}

/** Of `runs` in MoveRunsParams: source, target and bytes, 8 bytes each. */
export const runBytes = 24;
/** A warp takes a piece: longer runs are cut, so that all have as much to do. */
const mostPieceBytes = 16 * 1024;
/** Fewer runs, or longer ones, are left to the copy engine, which needs 2 to 3 us for each. */
const fewestRuns = 8;
const mostMeanBytes = 64 * 1024;

/** Blocks of threads of the kernels of cuda/move-rows.cu, two warps each. */
export const moveBlocks = 64;
export const moveThreads = 64;

/** Whether one kernel that reads mapped memory brings such runs sooner than a copy for each. */
export function movesTogether(runs: readonly MovedRun[]): boolean {
  const bytes = runs.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return runs.length >= fewestRuns && bytes <= runs.length * mostMeanBytes;
}

/** Pieces of runs that no warp takes too long for. */
export function piecesOf(runs: readonly MovedRun[]): number {
  return runs.reduce((sum, { byteLength }) => sum + Math.ceil(byteLength / mostPieceBytes), 0);
}

/**
 * Writes the pieces of runs as the kernel reads them; `into` is aligned to 8 bytes and has room for them. Thousands a pass:
 * nothing is made for each.
 */
export function writeRuns(runs: readonly MovedRun[], into: Uint8Array): void {
  const [needed, room] = [piecesOf(runs) * runBytes, into.byteLength];
  if (needed > room) throw new RangeError(`Cannot list runs in ${room} bytes: ${needed} bytes are needed`);
  const words = new Uint32Array(into.buffer, into.byteOffset, Math.floor(into.byteLength / 4));
  let next = 0;
  const write = (value: number): void => {
    words[next] = value >>> 0;
    words[next + 1] = Math.floor(value / 2 ** 32);
    next += 2;
  };
  for (const { source, target, byteLength } of runs) {
    for (let at = 0; at < byteLength; at += mostPieceBytes) {
      write(source + at);
      write(target + at);
      write(Math.min(mostPieceBytes, byteLength - at));
    }
  }
}

/** `runs`: device address of what `writeRuns` wrote. */
export function planMoveRuns(runs: number, count: number): Launch {
  const blocks = Math.min(moveBlocks, Math.ceil(count / (moveThreads / 32)));
  return launch(0, 'move_runs', 'MoveRunsParams', { grid: [blocks], threads: moveThreads }, { runs, count });
}
