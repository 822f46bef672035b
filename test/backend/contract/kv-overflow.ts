import { expect, it } from 'vitest';
import type { Backend } from '../../../src/backend/backend.js';
import { type DeviceBuffer, spanOf } from '../../../src/memory/buffers.js';

/** The one error of arithmetic: a finite value that F16 would store as infinity. */
export function kvOverflowContract(open: () => Promise<Backend>): void {
  // 65520 is halfway between the largest F16 and 2^16; the next lower binary32 still rounds down.
  const below = 65519.99609375;
  it.each([
    ['f16', 65520, true],
    ['f16', -65520, true],
    ['f16', 3.4028234663852886e38, true],
    ['f16', below, false],
    ['f16', -below, false],
    ['f16', Number.POSITIVE_INFINITY, false],
    ['f16', Number.NaN, false],
    ['f32', 65520, false],
    ['f32', 3.4028234663852886e38, false],
  ] as const)('stores into %s KV the value %d: overflow %s', async (type, value, overflows) => {
    const backend = await open();
    try {
      for (const part of ['keys', 'values'] as const) {
        const buffer = (label: string, byteLength: number): DeviceBuffer =>
          backend.allocate({ label, cause: 'kv', byteLength });
        const fresh = { keys: buffer('new keys', 3 * 6 * 4), values: buffer('new values', 3 * 6 * 4) };
        const positions = buffer('positions', 3 * 2 * 4);
        backend.write(spanOf(positions), new Uint8Array(Int32Array.of(0, 0, 0, 1, 0, 2).buffer));
        const cacheBytes = 6 * 4 * (type === 'f16' ? 2 : 4);
        const cache = { keys: buffer('keys', cacheBytes), values: buffer('values', cacheBytes) };
        const write = (last: number) =>
          backend.write(
            spanOf(fresh[part]),
            new Uint8Array(new Float32Array(18).fill(0.5).fill(last, 17).buffer),
          );
        const submit = () =>
          backend.submit([
            {
              label: 'layers.3.store-kv',
              op: {
                kind: 'store-kv',
                rows: 3,
                positions: spanOf(positions),
                keys: spanOf(fresh.keys),
                values: spanOf(fresh.values),
                cache: {
                  type,
                  keys: spanOf(cache.keys),
                  values: spanOf(cache.values),
                  slots: 1,
                  kvHeads: 2,
                  headDim: 3,
                  capacity: 4,
                },
              },
            },
          ]);
        write(value);
        if (overflows) {
          const failing = submit();
          await expect(failing).rejects.toMatchObject({ name: 'NumericsError', code: 'kv-overflow' });
          await expect(failing).rejects.toThrow(/"layers\.3\.store-kv".*--kv f32/);
        } else await submit();
        write(1); // a failed submission holds up no later one
        await submit();
        const stored = await backend.read(spanOf(cache[part]));
        // Keys [heads, dimension, capacity], values [heads, capacity, dimension]: head 1, dimension 2, position 2.
        const index = part === 'keys' ? (1 * 3 + 2) * 4 + 2 : (1 * 4 + 2) * 3 + 2;
        const one =
          type === 'f16' ? new Uint16Array(stored.slice().buffer) : new Float32Array(stored.slice().buffer);
        expect(one[index]).toBe(type === 'f16' ? 0x3c00 : 1);
      }
    } finally {
      await backend.close();
    }
  });
}
