import { describe, expect, test } from 'vitest';
import { openNull } from '../../src/backend/null/open-null.js';
import { BudgetedAllocator } from '../../src/memory/budget.js';
import { Ledger } from '../../src/memory/ledger.js';

function allocatorOf(budgetBytes: number) {
  const backend = openNull({ activeRows: () => [] });
  const ledger = new Ledger();
  return { backend, ledger, allocator: new BudgetedAllocator(backend, budgetBytes, ledger) };
}

describe('budgeted allocator', () => {
  test.each([
    [99, false],
    [100, true],
    [101, true],
  ])('a budget of %d bytes for 40 + 60: fits %s', (budgetBytes, fits) => {
    const { allocator, backend, ledger } = allocatorOf(budgetBytes);
    allocator.allocate({ label: 'kv cache', cause: 'kv', byteLength: 40 });
    const second = () => allocator.allocate({ label: 'staging', cause: 'staging', byteLength: 60 });
    if (fits) {
      second();
      expect(ledger.totals().held).toMatchObject({ kv: 40, staging: 60 });
      expect(backend.counters.heldBytes).toBe(100);
      return;
    }
    expect(second).toThrowError(
      expect.objectContaining({
        code: 'budget-exceeded',
        exitCode: 3,
        data: {
          budgetBytes,
          heldBytes: 40,
          requestedBytes: 60,
          label: 'staging',
          components: [{ label: 'kv cache', cause: 'kv', bytes: 40 }],
        },
      }),
    );
    expect(backend.counters.heldBytes).toBe(40);
  });

  test('counts what other allocators of the session hold', () => {
    const { allocator, backend, ledger } = allocatorOf(100);
    const other = new BudgetedAllocator(backend, 100, ledger);
    const buffer = other.allocate({ label: 'kv cache', cause: 'kv', byteLength: 80 });
    const request = { label: 'staging', cause: 'staging', byteLength: 21 } as const;
    expect(() => allocator.allocate(request)).toThrowError(
      expect.objectContaining({ code: 'budget-exceeded' }),
    );
    other.release(buffer);
    allocator.allocate(request);
    expect(ledger.totalHeld).toBe(21);
    expect(() => other.release(buffer)).toThrowError(expect.objectContaining({ code: 'defect' }));
  });

  test('charges parts of one buffer, and bytes outside the backend, by their causes', () => {
    const { allocator, backend, ledger } = allocatorOf(Infinity);
    const buffer = allocator.allocateParts('row arena', [
      { label: 'packet rows', cause: 'packet-rows', bytes: 10 },
      { label: 'kept rows', cause: 'kept-rows', bytes: 5 },
    ]);
    allocator.reserve({ label: 'index', cause: 'indices', bytes: 7 });
    expect(buffer.byteLength).toBe(15);
    expect(ledger.totals().held).toMatchObject({ 'packet-rows': 10, 'kept-rows': 5, indices: 7 });
    expect(allocator.components()).toHaveLength(3);
    allocator.release(buffer);
    allocator.unreserve('index');
    expect(ledger.totalHeld).toBe(0);
    expect(backend.counters.heldBytes).toBe(0);
  });

  test.each([-1, 1.5, Number.NaN, -Infinity, 2 ** 53])('refuses a budget of %d', (budgetBytes) => {
    expect(() => allocatorOf(budgetBytes)).toThrowError(
      expect.objectContaining({ code: 'bad-budget', exitCode: 2 }),
    );
  });

  test.each([2 ** 31, 2 ** 32 + 1])('compares %d bytes as an integer', (budgetBytes) => {
    const { allocator } = allocatorOf(budgetBytes);
    const request = (byteLength: number) => ({ label: 'x', cause: 'dense-weights', byteLength }) as const;
    expect(() => allocator.allocate(request(budgetBytes + 1))).toThrow();
    allocator.allocate(request(budgetBytes));
    expect(() => allocator.allocate(request(1))).toThrow();
  });
});
