import { describe, expect, test } from 'vitest';
import { openNull } from '../../src/backend/null/open-null.js';
import { BudgetedAllocator } from '../../src/memory/budget.js';
import { KvCache, kvBytes } from '../../src/memory/kv-cache.js';
import { Ledger } from '../../src/memory/ledger.js';

const shape = { layers: 3, slots: 2, kvHeads: 2, headDim: 5, capacity: 7, type: 'f16' } as const;

function open(budgetBytes: number) {
  const ledger = new Ledger();
  const allocator = new BudgetedAllocator(openNull({ activeRows: () => [] }), budgetBytes, ledger);
  return { ledger, cache: () => new KvCache(allocator, shape) };
}

describe('KV cache', () => {
  test('holds what kvBytes says, and nothing once closed', () => {
    const { ledger, cache } = open(Infinity);
    const opened = cache();
    expect(kvBytes(shape)).toBe(2 * 3 * 2 * 2 * 5 * 7 * 2);
    expect(kvBytes({ ...shape, type: 'f32' })).toBe(2 * kvBytes(shape));
    expect(ledger.totals().held.kv).toBe(kvBytes(shape));
    expect(opened.layer(2)).toMatchObject({ type: 'f16', slots: 2, kvHeads: 2, headDim: 5, capacity: 7 });
    expect(opened.layer(2).keys.byteLength).toBe(2 * 2 * 5 * 7 * 2);
    expect(() => opened.layer(3)).toThrowError(expect.objectContaining({ code: 'defect' }));
    opened.close();
    expect(ledger.totalHeld).toBe(0);
  });

  test('gives everything back when the budget ends half way', () => {
    const { ledger, cache } = open(kvBytes(shape) - 1);
    expect(cache).toThrowError(expect.objectContaining({ code: 'budget-exceeded' }));
    expect(ledger.totalHeld).toBe(0);
  });

  test('claims all slots asked for, or none', () => {
    const cache = open(Infinity).cache();
    expect(cache.claim(2)).toEqual([0, 1]);
    expect(() => cache.claim(1)).toThrowError(expect.objectContaining({ code: 'kv-slots-exhausted' }));
    cache.release(0);
    expect(() => cache.claim(2)).toThrowError(expect.objectContaining({ code: 'kv-slots-exhausted' }));
    expect(cache.claim(1)).toEqual([0]);
    cache.reset();
    expect(cache.freeSlots).toBe(2);
    expect(() => cache.release(1)).toThrowError(expect.objectContaining({ code: 'defect' }));
  });

  test.each([0, -1, 1.5, Number.NaN])('refuses %d positions', (capacity) => {
    const allocator = new BudgetedAllocator(openNull({ activeRows: () => [] }), Infinity, new Ledger());
    expect(() => new KvCache(allocator, { ...shape, capacity })).toThrow(RangeError);
  });
});
