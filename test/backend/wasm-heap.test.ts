import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { heapAlignment, WasmHeap } from '../../src/backend/cpu/wasm-heap.js';

const seed = 77_041;

type Step = { readonly allocate: number } | { readonly release: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ allocate: fc.oneof(fc.nat(300), fc.nat(20_000)) }),
  fc.record({ release: fc.nat(1000) }),
);

describe(`heap of the WebAssembly kernels (seed ${seed})`, () => {
  it('gives aligned blocks that never overlap, refuses only what does not fit, and becomes whole again', () => {
    fc.assert(
      fc.property(fc.nat(500), fc.array(step, { maxLength: 200 }), (begin, steps) => {
        const heap = new WasmHeap(begin, begin + 60_000);
        const whole = heap.end - heap.begin;
        expect(heap.begin).toBeGreaterThanOrEqual(begin);
        expect(heap.end).toBeLessThanOrEqual(begin + 60_000);
        const held: { address: number; size: number }[] = [];
        for (const one of steps) {
          if ('allocate' in one) {
            const largest = heap.largestFreeBytes;
            const address = heap.allocate(one.allocate);
            if (address === null) {
              expect(one.allocate).toBeGreaterThan(largest);
              continue;
            }
            const size = Math.max(1, Math.ceil(one.allocate / heapAlignment)) * heapAlignment;
            expect(address % heapAlignment).toBe(0);
            expect(address).toBeGreaterThanOrEqual(heap.begin);
            expect(address + size).toBeLessThanOrEqual(heap.end);
            for (const other of held) {
              expect(address + size <= other.address || other.address + other.size <= address).toBe(true);
            }
            held.push({ address, size });
          } else if (held.length > 0) {
            const [gone] = held.splice(one.release % held.length, 1);
            heap.release(gone!.address);
          }
          expect(heap.heldBytes).toBe(held.reduce((sum, { size }) => sum + size, 0));
          expect(heap.largestFreeBytes).toBe(largestGap(heap, held));
        }
        for (const { address } of held) heap.release(address);
        expect(heap.largestFreeBytes).toBe(whole);
        expect(heap.heldBytes).toBe(0);
      }),
      { seed, numRuns: 300 },
    );
  });

  it('refuses addresses that are not the beginning of a held block', () => {
    const heap = new WasmHeap(64, 4096);
    const address = heap.allocate(200)!;
    expect(() => heap.release(address + 64)).toThrow(RangeError);
    heap.release(address);
    expect(() => heap.release(address)).toThrow(RangeError);
  });

  it('has nothing to give where no aligned unit fits', () => {
    expect(new WasmHeap(65, 190).allocate(0)).toBeNull();
    expect(new WasmHeap(65, 192).allocate(64)).toBe(128);
  });
});

/** Longest range that no held block touches. */
function largestGap(heap: WasmHeap, held: readonly { address: number; size: number }[]): number {
  let largest = 0;
  let from = heap.begin;
  for (const { address, size } of [...held].sort((a, b) => a.address - b.address)) {
    largest = Math.max(largest, address - from);
    from = address + size;
  }
  return Math.max(largest, heap.end - from);
}
