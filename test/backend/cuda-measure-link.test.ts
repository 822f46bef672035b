import { describe, expect, it } from 'vitest';
import { type LinkBench, measureLink } from '../../src/backend/cuda/measure-link.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import { openNull } from '../../src/backend/null/open-null.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import { cudaFacts, oldestFacts } from './cuda-support.js';

/** A GPU without one: buffers by name only, every measurement takes as long as it is told. */
function bench(milliseconds: number, facts = cudaFacts) {
  const held = openNull({ activeRows: () => [] });
  const submitted: (readonly PlacedOp[])[] = [];
  const parts: LinkBench = {
    allocate: (request) => held.allocate(request),
    allocateMapped: (request) => held.allocate(request),
    release: (buffer) => held.release(buffer),
    write: (target, bytes) => held.write(target, bytes),
    submit: async (ops) => {
      planLaunches(ops, facts);
      submitted.push(ops);
    },
    copy: () => {},
    measure: async (enqueue) => {
      await enqueue();
      return milliseconds;
    },
  };
  return { parts, held, submitted };
}

describe('measuring a link', () => {
  it.each([128, 1280, 5120, 10_240, 40])(
    'rows of %i bytes: rates from times, everything given back',
    async (rowBytes) => {
      for (const facts of [cudaFacts, oldestFacts]) {
        const { parts, held, submitted } = bench(2, facts);
        const rates = await measureLink(parts, rowBytes);
        const copyBytes = 64 * 1024 * 1024;
        expect(rates.denseBytesPerSecond).toBe(copyBytes * 500);
        expect(rates.deviceBytesPerSecond).toBe(2 * copyBytes * 500);
        const product = submitted[0]!.find(({ op }) => op.kind === 'active-inputs')!.op;
        if (product.kind !== 'active-inputs') throw new Error('no product');
        expect(product.matrix.span.byteLength).toBeLessThanOrEqual(copyBytes);
        const rows = rates.rowBytesPerSecond / 500 / (product.outputs * 2);
        expect(Number.isInteger(rows)).toBe(true);
        expect(rows / (8 * product.xStride)).toBeGreaterThan(0.02);
        expect(rows / (8 * product.xStride)).toBeLessThan(0.05);
        expect(held.counters.heldBytes).toBe(0);
      }
    },
  );

  it('gives everything back where it fails', async () => {
    const { parts, held } = bench(1);
    let left = 3;
    const failing: LinkBench = {
      ...parts,
      measure: async (enqueue) => {
        if (left-- === 0) throw new Error('injected');
        return parts.measure(enqueue);
      },
    };
    await expect(measureLink(failing, 5120)).rejects.toThrow('injected');
    expect(held.counters.heldBytes).toBe(0);
  });
});
