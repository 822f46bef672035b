import type { WeightMover } from '../acquire/executor.js';
import { planRounds, type RowRun } from '../acquire/rounds.js';
import { type RowPlace, regionsOf } from '../acquire/row-reader.js';
import { newLayerCounters } from '../acquire/stats.js';
import { blockInputs } from '../backend/ops.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import type { Span } from '../memory/buffers.js';

/** What rows of neurons cost that the host has brought to where they are used. */
export interface RowRates {
  /** Rows of an active set, in the calls that a pass makes, less what beginning one costs. */
  readonly rowBytesPerSecond: number;
  readonly rowStartSeconds: number;
  /** Blocks of 128 rows, several in a call. */
  readonly extentBytesPerSecond: number;
}

/** A matrix whose rows are read, as far as they are there. */
export interface RowBench {
  readonly mover: WeightMover;
  readonly description: MatrixDescription;
  readonly filePosition: number;
  readonly rowBytes: number;
  readonly rows: number;
  readonly arena: Span;
}

const turns = 5;
/** As many turns again let the host's code settle: at first it takes several times as long as it does in a run. */
const settling = turns;

/** Other rows in every turn, so that what one has left in a cache is of no use to the next; the median of turns. */
export async function rowRates(benches: readonly RowBench[], activeShare: number): Promise<RowRates> {
  const timed = async (runs: (bench: RowBench, turn: number) => readonly RowRun[], untimed: number) => {
    const each: number[] = [];
    let bytes = 0;
    for (let turn = 0; turn < untimed + turns; turn += 1) {
      const bench = benches[turn % benches.length]!;
      const began = process.hrtime.bigint();
      const list = runs(bench, turn);
      await bench.mover.read(bench.description.id, regionsOf(placeOf(bench), list));
      if (turn >= untimed) each.push(Number(process.hrtime.bigint() - began) / 1e9);
      bytes = list.reduce((sum, { rows }) => sum + rows * bench.rowBytes, 0);
    }
    return { seconds: each.sort((a, b) => a - b)[turns >> 1]!, bytes };
  };
  const all = settling + turns;
  const one = await timed(
    ({ rows }, turn) => [{ neuron: Math.floor((rows * turn) / all), slot: 0, rows: 1 }],
    settling,
  );
  const active = await timed((bench, turn) => activeRuns(bench, activeShare, turn / all), settling);
  const extents = await timed(extentRuns, 0);
  const rowStartSeconds = Math.min(one.seconds, active.seconds / 2);
  return {
    rowStartSeconds,
    rowBytesPerSecond: active.bytes / (active.seconds - rowStartSeconds),
    extentBytesPerSecond: extents.bytes / Math.max(extents.seconds - rowStartSeconds, extents.seconds / 2),
  };
}

/** As many rows as are active in a token, at uneven distances, planned as a pass does. */
function activeRuns(
  { rows, rowBytes, arena }: RowBench,
  activeShare: number,
  shift: number,
): readonly RowRun[] {
  const room = Math.floor(arena.byteLength / rowBytes);
  const count = Math.max(1, Math.min(room, Math.round(activeShare * rows)));
  const step = rows / count;
  const neurons = Uint32Array.from({ length: count }, (_, index) =>
    Math.floor((index + (((index * 7) / 5 + shift) % 1)) * step),
  );
  const plan = planRounds(neurons, { packetRows: room, keptSlot: () => -1, offer: () => -1 });
  return plan.rounds.flatMap(({ runs }) => runs);
}

/** Every other block, as far as there is room. */
function extentRuns({ rows, rowBytes, arena }: RowBench, turn: number): readonly RowRun[] {
  const run = Math.min(rows, blockInputs, Math.floor(arena.byteLength / rowBytes));
  const room = Math.max(1, Math.floor(arena.byteLength / rowBytes / run));
  const count = Math.max(1, Math.min(room, Math.floor(rows / run / 2)));
  return Array.from({ length: count }, (_, index) => ({
    neuron: Math.min((index * 2 + (turn % 2)) * run, rows - run),
    slot: index * run,
    rows: run,
  }));
}

function placeOf({ description, filePosition, rowBytes, arena }: RowBench): RowPlace {
  return { description, filePosition, rowBytes, arena, counters: newLayerCounters() };
}
