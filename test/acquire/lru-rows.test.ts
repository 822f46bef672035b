import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LruRows, lruIndexBytes } from '../../src/acquire/lru-rows.js';
import { planRounds } from '../../src/acquire/rounds.js';

const width = 40;
const sets = fc.array(fc.uniqueArray(fc.integer({ min: 0, max: width - 1 })), { maxLength: 30 });

/** The same by a plain list, newest first. */
class NaiveLru {
  rows: number[] = [];
  readonly capacity: number;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  use(set: readonly number[]): { hits: number; moved: number } {
    const hits = set.filter((neuron) => this.rows.includes(neuron));
    for (const neuron of hits) this.rows = [neuron, ...this.rows.filter((other) => other !== neuron)];
    const misses = set.filter((neuron) => !hits.includes(neuron));
    const entered = misses.slice(0, this.capacity - hits.length);
    for (const neuron of entered) this.rows = [neuron, ...this.rows].slice(0, this.capacity);
    return { hits: hits.length, moved: misses.length };
  }
}

test('holds the rows of a plain list, whatever comes', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: width + 5 }),
      sets,
      fc.infiniteStream(fc.boolean()),
      (capacity, script, fails) => {
        const firstSlot = 100;
        const lru = new LruRows(width, firstSlot, capacity);
        const naive = new NaiveLru(capacity);
        const arena = new Map<number, number>(); // slot to neuron
        for (const unsorted of script) {
          const set = [...unsorted].sort((a, b) => a - b);
          lru.begin();
          const plan = planRounds(Uint32Array.from(set), {
            packetRows: 64,
            keptSlot: (neuron) => lru.slotOf(neuron),
            offer: () => lru.offer(),
          });
          const before = [...naive.rows];
          const expected = naive.use(set);
          expect([plan.keptHits, plan.rounds[0]!.movedRows]).toEqual([expected.hits, expected.moved]);
          if (fails.next().value === true && plan.rounds[0]!.newcomers.length > 0) {
            // The read fails: what was to be evicted is gone, what was to come is not there.
            lru.reset();
            const evicted = before.filter((neuron) => !naive.rows.includes(neuron));
            const newcomers = plan.rounds[0]!.newcomers;
            naive.rows = naive.rows.filter((neuron) => !newcomers.includes(neuron));
            for (const neuron of [...evicted, ...newcomers]) expect(lru.slotOf(neuron)).toBe(-1);
            expect(lru.count).toBe(naive.rows.length);
            continue;
          }
          for (const { neuron, slot, rows } of plan.rounds[0]!.runs) {
            for (let row = 0; row < rows; row += 1) arena.set(slot + row, neuron + row);
          }
          lru.enter(plan.rounds[0]!.newcomers);
          set.forEach((neuron, position) => {
            expect(arena.get(plan.slots[position]!)).toBe(neuron);
          });
          expect(lru.count).toBe(naive.rows.length);
        }
      },
    ),
    { numRuns: 150, seed: 1130 },
  );
});

test('the same sets give the same evictions, and a row of the set in use is never evicted', () => {
  const lru = new LruRows(width, 0, 3);
  const use = (set: number[]) => {
    lru.begin();
    const plan = planRounds(Uint32Array.from(set), {
      packetRows: 64,
      keptSlot: (neuron) => lru.slotOf(neuron),
      offer: () => lru.offer(),
    });
    lru.enter(plan.rounds[0]!.newcomers);
    return [plan.keptHits, ...plan.rounds[0]!.newcomers];
  };
  expect(use([1, 2, 3])).toEqual([0, 1, 2, 3]);
  expect(use([2, 9])).toEqual([1, 9]); // 1 goes: the oldest
  expect(use([1, 2, 3, 4])).toEqual([2, 1]); // 9 goes; 4 finds no place beside 1, 2 and 3
  expect(use([1, 2, 3])).toEqual([3]);
});

test('index bytes', () => expect(lruIndexBytes(8192, 1024)).toBe(4 * 8192 + 16 * 1024));
