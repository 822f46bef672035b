import fc from 'fast-check';
import { expect, test } from 'vitest';
import { KeptRows } from '../../src/acquire/kept-rows.js';
import { planRounds } from '../../src/acquire/rounds.js';

const width = 1500;

interface Case {
  readonly active: readonly number[];
  readonly packetRows: number;
  readonly keptRows: number;
  readonly before: readonly number[];
}

const sets = fc
  .tuple(
    fc.double({ min: 0, max: 1, noNaN: true }),
    fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })),
  )
  .map(([share, stream]) => {
    const set: number[] = [];
    for (let neuron = 0; neuron < width; neuron += 1) {
      if (stream.next().value! < share) set.push(neuron);
    }
    return set;
  });

const cases: fc.Arbitrary<Case> = fc.record({
  active: fc.oneof(fc.constant([]), sets),
  packetRows: fc.integer({ min: 128, max: width }),
  keptRows: fc.integer({ min: 0, max: width }),
  before: sets,
});

/** Runs a plan as the feed would, on an arena of neuron numbers. */
function execute({ active, packetRows, keptRows, before }: Case): void {
  const kept = new KeptRows(width, packetRows, keptRows);
  const arena = new Int32Array(packetRows + keptRows).fill(-1);
  const room = {
    packetRows,
    keptSlot: (neuron: number) => kept.slotOf(neuron),
    offer: (newcomer: number) => kept.offer(newcomer),
  };
  const seen = new Set<number>();
  for (const set of [before, active]) {
    const known = new Set(set.filter((neuron) => kept.slotOf(neuron) >= 0));
    const plan = planRounds(Uint32Array.from(set), room);
    expect(plan.keptHits).toBe(known.size);
    expect(plan.slots).toHaveLength(set.length);
    let position = 0;
    let moved = 0;
    let [overwritten, misplaced, disturbed] = [0, 0, 0]; // kept rows, rows computed with, rows in use
    for (const [index, round] of plan.rounds.entries()) {
      expect(round.listBegin).toBe(position);
      position = round.listEnd;
      if (index > 0) {
        const [last, first] = [set[round.listBegin - 1]!, set[round.listBegin]!];
        expect(Math.floor(first / 128)).toBeGreaterThan(Math.floor(last / 128));
      }
      for (const { neuron, slot, rows } of round.runs) {
        for (let row = 0; row < rows; row += 1) {
          if (slot + row >= packetRows && arena[slot + row] !== -1) overwritten += 1;
          arena[slot + row] = neuron + row;
        }
        moved += rows;
      }
      kept.enter(round.newcomers);
      for (let p = round.listBegin; p < round.listEnd; p += 1) {
        if (arena[plan.slots[p]!] !== set[p]) misplaced += 1;
      }
      // A round may fill its half while the round before computes from the other.
      const next = plan.rounds[index + 1];
      if (next !== undefined && next.half !== round.half) {
        const rewritten = new Set(next.runs.flatMap(({ slot, rows }) => span(slot, rows)));
        for (let p = round.listBegin; p < round.listEnd; p += 1) {
          if (rewritten.has(plan.slots[p]!)) disturbed += 1;
        }
      }
    }
    expect(position).toBe(set.length);
    expect(moved).toBe(set.length - known.size);
    expect(plan.rounds.reduce((sum, { movedRows }) => sum + movedRows, 0)).toBe(moved);
    expect({ overwritten, misplaced, disturbed }).toEqual({ overwritten: 0, misplaced: 0, disturbed: 0 });
    for (const neuron of set) seen.add(neuron);
    expect(kept.count).toBe(Math.min(keptRows, seen.size));
  }
}

function span(begin: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => begin + index);
}

test('every row lies where its slot says when its round computes', () => {
  fc.assert(fc.property(cases, execute), { numRuns: 60, seed: 1130 });
});

test('adjacent neurons are one read', () => {
  const plan = planRounds(Uint32Array.from([3, 4, 5, 9, 130, 131]), {
    packetRows: 200,
    keptSlot: () => -1,
    offer: () => -1,
  });
  expect(plan.rounds).toHaveLength(1);
  expect(plan.rounds[0]!.runs).toEqual([
    { neuron: 3, slot: 0, rows: 3 },
    { neuron: 9, slot: 3, rows: 1 },
    { neuron: 130, slot: 4, rows: 2 },
  ]);
});

test('a set larger than the packet rows alternates between two halves', () => {
  const active = Uint32Array.from({ length: 1024 }, (_, neuron) => neuron);
  const { rounds } = planRounds(active, { packetRows: 512, keptSlot: () => -1, offer: () => -1 });
  expect(rounds.map(({ listBegin, listEnd, half }) => [listBegin, listEnd, half])).toEqual([
    [0, 256, 0],
    [256, 512, 1],
    [512, 768, 0],
    [768, 1024, 1],
  ]);
});

test('an empty set is one empty round, so that bias and residual are added', () => {
  const { rounds } = planRounds(new Uint32Array(), { packetRows: 128, keptSlot: () => -1, offer: () => -1 });
  expect(rounds).toEqual([{ listBegin: 0, listEnd: 0, runs: [], movedRows: 0, newcomers: [], half: 0 }]);
});
