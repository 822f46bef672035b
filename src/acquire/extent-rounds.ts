import { blockInputs } from '../backend/ops.js';
import type { Round, RoundPlan, RowRun } from './rounds.js';

/**
 * Divides an active set into rounds of whole extents: blocks of 128 neurons counted from 0, the last one as long as the
 * matrix allows. Adjacent extents are one read. `packetRows` is a multiple of 128 or has room for all neurons.
 */
export function planExtents(active: Uint32Array, packetRows: number, neurons: number): RoundPlan {
  const extentOf = (position: number) => Math.floor(active[position]! / blockInputs);
  let extents = 0;
  for (let position = 0; position < active.length; position += 1) {
    if (position === 0 || extentOf(position) !== extentOf(position - 1)) extents += 1;
  }
  const room = Math.ceil(packetRows / blockInputs);
  const halved = extents > room && room >= 2;
  const capacity = halved ? Math.floor(room / 2) : room;
  const slots = new Uint32Array(active.length);
  const rounds: Round[] = [];
  let runs: RowRun[] = [];
  let [begin, used, last] = [0, 0, -1]; // list position, extents of this round, extent
  for (let position = 0; position < active.length; position += 1) {
    const extent = extentOf(position);
    if (extent !== last) {
      if (used === capacity) close(position);
      const first = extent * blockInputs;
      const slot = (half() * capacity + used) * blockInputs;
      runs = append(runs, {
        neuron: first,
        slot,
        rows: Math.min(blockInputs, neurons - first),
      });
      used += 1;
      last = extent;
    }
    slots[position] = (half() * capacity + used - 1) * blockInputs + (active[position]! % blockInputs);
  }
  close(active.length);
  return { rounds, slots, keptHits: 0 };

  function half(): 0 | 1 {
    return halved && rounds.length % 2 === 1 ? 1 : 0;
  }

  function close(end: number): void {
    const movedRows = runs.reduce((sum, { rows }) => sum + rows, 0);
    rounds.push({ listBegin: begin, listEnd: end, runs, movedRows, newcomers: [], half: half() });
    [runs, begin, used] = [[], end, 0];
  }
}

function append(runs: readonly RowRun[], run: RowRun): RowRun[] {
  const before = runs.at(-1);
  if (
    before !== undefined &&
    before.neuron + before.rows === run.neuron &&
    before.slot + before.rows === run.slot
  ) {
    return [...runs.slice(0, -1), { ...before, rows: before.rows + run.rows }];
  }
  return [...runs, run];
}
