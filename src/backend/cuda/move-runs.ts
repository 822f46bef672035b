import { type Launch, launch } from './launch.js';

/** A piece of mapped host memory, and where on the device it is to land. */
export interface MovedRun {
  readonly source: number; // device address
  readonly target: number;
  readonly byteLength: number;
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

/** Runs that no warp takes too long for. */
export function cutRuns(runs: readonly MovedRun[]): MovedRun[] {
  return runs.flatMap(({ source, target, byteLength }) =>
    Array.from({ length: Math.ceil(byteLength / mostPieceBytes) }, (_, piece) => {
      const at = piece * mostPieceBytes;
      return {
        source: source + at,
        target: target + at,
        byteLength: Math.min(mostPieceBytes, byteLength - at),
      };
    }),
  );
}

/** Writes pieces as the kernel reads them; `into` is aligned to 8 bytes and has room for them. */
export function writeRuns(runs: readonly MovedRun[], into: Uint8Array): void {
  const words = new BigUint64Array(into.buffer, into.byteOffset, runs.length * (runBytes / 8));
  runs.forEach(({ source, target, byteLength }, index) => {
    words[3 * index] = BigInt(source);
    words[3 * index + 1] = BigInt(target);
    words[3 * index + 2] = BigInt(byteLength);
  });
}

/** `runs`: device address of what `writeRuns` wrote. */
export function planMoveRuns(runs: number, count: number): Launch {
  const blocks = Math.min(moveBlocks, Math.ceil(count / (moveThreads / 32)));
  return launch(0, 'move_runs', 'MoveRunsParams', { grid: [blocks], threads: moveThreads }, { runs, count });
}
