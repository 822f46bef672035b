import { describe, expect, test } from 'vitest';
import { differenceOf, Ledger } from '../../src/memory/ledger.js';
import { MoveTrace, type TraceRecord, traceLine } from '../../src/memory/trace.js';

describe('ledger', () => {
  test('counts moves by cause and differences of totals', () => {
    const ledger = new Ledger();
    ledger.move('packet-rows', 100, 2);
    const before = ledger.totals();
    ledger.move('packet-rows', 50, 1);
    ledger.move('dense-weights', 7, 3);
    const { moved, movedRows } = differenceOf(ledger.totals(), before);
    expect(moved['packet-rows']).toBe(50);
    expect(movedRows['packet-rows']).toBe(1);
    expect(moved['dense-weights']).toBe(7);
    expect(ledger.totals().moved['packet-rows']).toBe(150);
    expect(before.moved['packet-rows']).toBe(100);
    expect(() => differenceOf(before, ledger.totals())).toThrow(RangeError);
  });

  test('keeps peaks of what is held, by cause and in all', () => {
    const ledger = new Ledger();
    ledger.hold('kv', 10);
    ledger.release('kv', 10);
    ledger.hold('staging', 6);
    ledger.hold('kv', 3);
    const totals = ledger.totals();
    expect(totals.held.kv).toBe(3);
    expect(totals.heldPeak.kv).toBe(10);
    expect(totals.totalHeld).toBe(9);
    expect(totals.totalHeldPeak).toBe(10);
    expect(() => ledger.release('staging', 7)).toThrowError(expect.objectContaining({ code: 'defect' }));
  });

  test.each([-1, 1.5, Number.NaN, Infinity, 2 ** 53])('refuses %d as a count', (bytes) => {
    const ledger = new Ledger();
    expect(() => ledger.move('setup', bytes, 0)).toThrowError(expect.objectContaining({ code: 'defect' }));
    expect(() => ledger.hold('kv', bytes)).toThrowError(expect.objectContaining({ code: 'defect' }));
  });
});

describe('trace', () => {
  test('numbers and times every move of its ledger', () => {
    const records: TraceRecord[] = [];
    let now = 1000n;
    const trace = new MoveTrace(
      (record) => records.push(record),
      () => now,
    );
    const ledger = new Ledger(trace.record);
    ledger.pass = 3;
    now = 1250n;
    ledger.move('logits-readback', 64, 1);
    now = 1300n;
    const details = {
      layer: 2,
      id: 'layers.2.second',
      regions: 4,
      from: 'disk',
      to: 'ram',
      pass: 5,
    } as const;
    ledger.move('packet-rows', 512, 9, details);
    expect(records).toEqual([
      {
        sequence: 1,
        tNs: 250,
        cause: 'logits-readback',
        layer: null,
        id: 'logits-readback',
        rows: 1,
        bytes: 64,
        regions: 1,
        from: 'ram',
        to: 'host',
        pass: 3,
      },
      { sequence: 2, tNs: 300, cause: 'packet-rows', rows: 9, bytes: 512, ...details },
    ]);
    expect(traceLine(records[0]!)).toBe(`${JSON.stringify(records[0])}\n`);
  });
});
