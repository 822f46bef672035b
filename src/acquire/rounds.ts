import { blockInputs } from '../backend/ops.js';

/** Where rows of an active set are found or put, when packet room and kept rows allow. */
export interface RoundRoom {
  /** Packet rows of the arena; at least one block's rows, or all neurons. */
  readonly packetRows: number;
  /** Arena row of a kept neuron, or -1. */
  readonly keptSlot: (neuron: number) => number;
  /** Arena row to keep the n-th newcomer in, or -1. Asked for only once every kept neuron has been. */
  readonly offer: (newcomer: number) => number;
  /** False: rounds fill the packet rows whole, one after another. */
  readonly halves?: boolean;
}

/** Adjacent rows of the file that land in adjacent rows of the arena: one read. */
export interface RowRun {
  readonly neuron: number;
  readonly slot: number;
  readonly rows: number;
}

/** One op's share of an active set, and what must be read for it. */
export interface Round {
  readonly listBegin: number;
  readonly listEnd: number;
  readonly runs: readonly RowRun[];
  readonly movedRows: number;
  /** Neurons of this round that will be kept, in the order of their slots. */
  readonly newcomers: readonly number[];
  /** Which half of the packet rows it fills: rounds of different halves may overlap. 0 also for the whole. */
  readonly half: 0 | 1;
}

/** An active set divided into rounds. */
export interface RoundPlan {
  readonly rounds: readonly Round[];
  /** Arena row by list position; null where neurons lie at the rows of their own number. */
  readonly slots: Uint32Array | null;
  readonly keptHits: number;
}

/**
 * Divides an ascending active set into rounds that fit the packet rows, cut between blocks of 128 neurons, so that the
 * chain of ops adds in the order of one. One round where all fits; else rounds alternate between two halves.
 */
export function planRounds(
  active: Uint32Array,
  room: RoundRoom,
): RoundPlan & { readonly slots: Uint32Array } {
  const slots = new Uint32Array(active.length);
  const packet = new Uint8Array(active.length); // 1: needs a packet row
  const keep = new Uint8Array(active.length); // 1: is read into a kept row
  let keptHits = 0;
  let newcomers = 0;
  let packetTotal = 0;
  for (let position = 0; position < active.length; position += 1) {
    const kept = room.keptSlot(active[position]!);
    if (kept < 0) {
      packet[position] = 1;
      continue;
    }
    slots[position] = kept;
    keptHits += 1;
  }
  for (let position = 0; position < active.length; position += 1) {
    if (packet[position] === 0) continue;
    const offered = room.offer(newcomers);
    if (offered >= 0) {
      packet[position] = 0;
      slots[position] = offered;
      keep[position] = 1;
      newcomers += 1;
    } else {
      packetTotal += 1;
    }
  }
  const oneRound = packetTotal <= room.packetRows;
  const halved = !oneRound && room.halves !== false && room.packetRows >= 2 * blockInputs;
  const capacity = halved ? Math.floor(room.packetRows / 2) : room.packetRows;
  const rounds: Round[] = [];
  let begin = 0;
  let used = 0;
  for (let position = 0; position < active.length; ) {
    const end = oneRound ? active.length : blockEnd(active, position);
    let needed = 0;
    for (let p = position; p < end; p += 1) needed += packet[p]!;
    if (used + needed > capacity && position > begin) {
      close(position);
      begin = position;
      used = 0;
    }
    let next = (halved && rounds.length % 2 === 1 ? capacity : 0) + used;
    for (let p = position; p < end; p += 1) {
      if (packet[p] === 1) slots[p] = next++;
    }
    used += needed;
    position = end;
  }
  close(active.length);
  return { rounds, slots, keptHits };

  function close(end: number): void {
    const half = halved && rounds.length % 2 === 1 ? 1 : 0;
    const runs = mergeRuns(active, slots, begin, end, (p) => packet[p] === 1 || keep[p] === 1);
    rounds.push({
      listBegin: begin,
      listEnd: end,
      runs,
      movedRows: runs.reduce((sum, run) => sum + run.rows, 0),
      newcomers: Array.from(active.subarray(begin, end)).filter((_, index) => keep[begin + index] === 1),
      half,
    });
  }
}

/** First list position behind the 128-neuron block that `position` lies in. */
function blockEnd(active: Uint32Array, position: number): number {
  const block = Math.floor(active[position]! / blockInputs);
  let end = position + 1;
  while (end < active.length && Math.floor(active[end]! / blockInputs) === block) end += 1;
  return end;
}

/** All neurons of a list, read into the slots of their positions. */
export function runsOf(neurons: Uint32Array, slotAt: (position: number) => number): RowRun[] {
  const slots = Uint32Array.from(neurons, (_, position) => slotAt(position));
  return mergeRuns(neurons, slots, 0, neurons.length, () => true);
}

function mergeRuns(
  active: Uint32Array,
  slots: Uint32Array,
  begin: number,
  end: number,
  isRead: (position: number) => boolean,
): RowRun[] {
  const runs: { neuron: number; slot: number; rows: number }[] = [];
  for (let p = begin; p < end; p += 1) {
    if (!isRead(p)) continue;
    const last = runs.at(-1);
    if (last !== undefined && active[p] === last.neuron + last.rows && slots[p] === last.slot + last.rows) {
      last.rows += 1;
    } else {
      runs.push({ neuron: active[p]!, slot: slots[p]!, rows: 1 });
    }
  }
  return runs;
}
