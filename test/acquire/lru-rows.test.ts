import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LruRows, lruIndexBytes } from '../../src/acquire/lru-rows.js';
import { planRounds } from '../../src/acquire/rounds.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import { emptyRowIndex, freshPlace, rowIndexBytes } from '../../src/backend/row-index.js';
import { type Span, spanOf } from '../../src/memory/buffers.js';

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

test('the index that a device keeps gives the same places in the same order', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: width + 5 }), sets, async (places, script) => {
      const oracle = openOracle();
      const room = (words: Uint32Array): Span => {
        const { byteLength } = words;
        const span = spanOf(oracle.allocate({ label: 'index', cause: 'retention-index', byteLength }));
        oracle.write(span, new Uint8Array(words.buffer));
        return span;
      };
      const shape = { neurons: width, places, replaces: true };
      expect(rowIndexBytes(shape)).toBe(lruIndexBytes(width, places));
      const index = { ...shape, span: room(emptyRowIndex(shape)) };
      const [active, hits] = [room(new Uint32Array(1 + width)), room(new Uint32Array(1))];
      const read = async (span: Span) => new Uint32Array((await oracle.read(span)).slice().buffer);
      const lru = new LruRows(width, 0, places);
      for (const unsorted of script) {
        const set = Uint32Array.from(unsorted).sort();
        lru.begin();
        const plan = planRounds(set, {
          packetRows: 64,
          keptSlot: (neuron) => lru.slotOf(neuron),
          offer: () => lru.offer(),
        });
        const { newcomers } = plan.rounds[0]!;
        lru.enter(newcomers);
        oracle.write(
          active,
          new Uint8Array(
            Uint32Array.from([set.length, ...set, ...new Array(width - set.length).fill(0)]).buffer,
          ),
        );
        await oracle.submit([{ label: 'places', op: { kind: 'retain-rows', active, index, hits } }]);
        const words = await read(index.span);
        expect((await read(hits))[0]).toBe(plan.keptHits);
        for (const [position, neuron] of set.entries()) {
          const word = words[neuron]!;
          const fresh = newcomers.includes(neuron);
          expect(word > freshPlace).toBe(fresh);
          if (word > 0) expect((word & (freshPlace - 1)) - 1).toBe(plan.slots[position]);
          else expect(plan.slots[position]).toBeLessThan(64); // a packet row
        }
        expect(words.subarray(0, width).filter((word) => word > 0)).toHaveLength(lru.count);
      }
      await oracle.close();
    }),
    { numRuns: 100, seed: 1130 },
  );
});
