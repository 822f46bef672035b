import fc from 'fast-check';
import { expect, test } from 'vitest';
import { planExtents } from '../../src/acquire/extent-rounds.js';

test('every active row lies where its slot says, whole extents move, no half is written in use', () => {
  const cases = fc.integer({ min: 1, max: 1500 }).chain((neurons) =>
    fc.record({
      neurons: fc.constant(neurons),
      active: fc.uniqueArray(fc.integer({ min: 0, max: neurons - 1 }), { maxLength: 60 }),
      blocks: fc.integer({ min: 1, max: 12 }),
    }),
  );
  fc.assert(
    fc.property(cases, ({ neurons, active: unsorted, blocks }) => {
      const active = Uint32Array.from(unsorted).sort();
      const packetRows = Math.min(blocks * 128, neurons);
      const { rounds, slots } = planExtents(active, packetRows, neurons);
      const extents = new Set(Array.from(active, (neuron) => Math.floor(neuron / 128)));
      const wanted = [...extents].reduce((sum, extent) => sum + Math.min(128, neurons - extent * 128), 0);
      expect(rounds.reduce((sum, { movedRows }) => sum + movedRows, 0)).toBe(wanted);
      const arena = new Int32Array(packetRows).fill(-1);
      let position = 0;
      for (const [index, round] of rounds.entries()) {
        expect(round.listBegin).toBe(position);
        position = round.listEnd;
        for (const { neuron, slot, rows } of round.runs) {
          expect(neuron % 128).toBe(0);
          for (let row = 0; row < rows; row += 1) arena[slot + row] = neuron + row;
          expect(slot + rows).toBeLessThanOrEqual(packetRows);
        }
        for (let p = round.listBegin; p < round.listEnd; p += 1) expect(arena[slots![p]!]).toBe(active[p]);
        const next = rounds[index + 1];
        if (next === undefined || next.half === round.half) continue;
        const begins = next.runs.map(({ slot }) => slot);
        const used = Array.from(slots!.subarray(round.listBegin, round.listEnd));
        const written = (slot: number) =>
          next.runs.some((run) => slot >= run.slot && slot < run.slot + run.rows);
        expect([begins.length > 0, used.some(written)]).toEqual([true, false]);
      }
      expect(position).toBe(active.length);
    }),
    { numRuns: 200, seed: 1130 },
  );
});

test('adjacent extents are one read', () => {
  const { rounds } = planExtents(Uint32Array.from([5, 130, 131, 600]), 1024, 640);
  expect(rounds).toHaveLength(1);
  expect(rounds[0]!.runs).toEqual([
    { neuron: 0, slot: 0, rows: 256 },
    { neuron: 512, slot: 256, rows: 128 },
  ]);
});

test('an empty set is one empty round', () => {
  expect(planExtents(new Uint32Array(), 128, 640).rounds).toEqual([
    { listBegin: 0, listEnd: 0, runs: [], movedRows: 0, newcomers: [], half: 0 },
  ]);
});
