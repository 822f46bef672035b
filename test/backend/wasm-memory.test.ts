import { describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { openWasm } from '../../src/backend/cpu/wasm-backend.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import { SetupError, UsageError } from '../../src/base/errors.js';
import { spanOf } from '../../src/memory/buffers.js';
import { floats, matrixVector, put } from './wasm-support.js';

const gib = 2 ** 30;

async function withWasm(
  options: { threads: number; maximumBytes?: number },
  use: (backend: Backend) => Promise<void>,
): Promise<void> {
  const backend = await openWasm(options);
  try {
    await use(backend);
  } finally {
    await backend.close();
  }
}

const request = (label: string, byteLength: number) =>
  ({ label, cause: 'dense-weights', byteLength }) as const;

describe('memory of the WebAssembly kernels', () => {
  it('addresses 4 GiB less its own overhead, all of it and not a byte more', () =>
    withWasm({ threads: 2 }, async (backend) => {
      expect(backend.addressableBytes).toBeGreaterThan(4 * gib - 2 ** 20);
      expect(backend.addressableBytes).toBeLessThan(4 * gib);
      const whole = backend.allocate(request('whole', backend.addressableBytes));
      expect(whole.address + whole.byteLength).toBeLessThan(2 ** 32);
      const refused = (): unknown => backend.allocate(request('one more', 1));
      expect(refused).toThrow(SetupError);
      expect(refused).toThrow(
        `Cannot allocate "one more": 1 bytes do not fit, ${whole.byteLength} of the ${backend.addressableBytes} bytes that WebAssembly kernels can address are held and the largest free range has 0`,
      );
      backend.release(whole);
      const data = { label: 'too long', addressableBytes: String(backend.addressableBytes), heldBytes: '0' };
      expect(() => backend.allocate(request('too long', backend.addressableBytes + 1))).toThrow(
        expect.objectContaining({ code: 'out-of-memory', data: expect.objectContaining(data) }),
      );
      // Not the whole again: what was given out before is cleared, which would touch every page.
      expect(backend.allocate(request('again', 1000)).address).toBe(whole.address);
    }));

  it('computes the same at the last addresses as anywhere', () =>
    withWasm({ threads: 3 }, async (backend) => {
      const oracle = openOracle();
      const inputs = 300;
      const outputs = 77;
      const numbers = (count: number, step: number) =>
        Float32Array.from({ length: count }, (_, index) => Math.sin(1 + index * step));
      const run = async (on: Backend): Promise<Float32Array> => {
        const x = put(on, 'x', numbers(inputs, 0.37));
        const out = put(on, 'out', new Float32Array(outputs));
        const matrix = put(on, 'matrix', numbers(inputs * outputs, 0.11));
        await on.submit([{ label: 'far', op: matrixVector(x, matrix, out, inputs, outputs) }]);
        return floats(on, out);
      };
      // Fills the memory up to what the operands take, so that the matrix ends where the memory does.
      const own = [inputs, outputs, inputs * outputs].reduce(
        (sum, n) => sum + Math.ceil((n * 4) / 64) * 64,
        0,
      );
      backend.allocate(request('filler', backend.addressableBytes - own));
      expect(await run(backend)).toEqual(await run(oracle));
      expect(() => backend.allocate(request('more', 1))).toThrow(SetupError);
      await oracle.close();
    }));

  it('keeps to a smaller limit', () =>
    withWasm({ threads: 1, maximumBytes: 2 ** 21 + 5 }, async (backend) => {
      expect(backend.addressableBytes).toBeLessThan(2 ** 21);
      backend.allocate(request('fits', backend.addressableBytes));
      expect(() => backend.allocate(request('more', 1))).toThrow(SetupError);
    }));

  it('refuses thread counts and limits that it cannot have', async () => {
    for (const threads of [0, -1, 1.5, Number.NaN, 257]) {
      await expect(openWasm({ threads })).rejects.toMatchObject({ name: 'UsageError', code: 'bad-threads' });
    }
    for (const maximumBytes of [0, 1000, 4 * gib + 1, Number.NaN]) {
      await expect(openWasm({ threads: 1, maximumBytes })).rejects.toThrow(UsageError);
    }
  });

  it('gives released bytes out again, zeroed, beside those still held', () =>
    withWasm({ threads: 1 }, async (backend) => {
      const a = backend.allocate(request('a', 1000));
      const b = backend.allocate(request('b', 1000));
      backend.write(spanOf(a), new Uint8Array(1000).fill(7));
      backend.write(spanOf(b), new Uint8Array(1000).fill(9));
      backend.release(a);
      const c = backend.allocate(request('c', 900));
      expect(c.address).toBe(a.address);
      expect((await backend.read(spanOf(c))).every((byte) => byte === 0)).toBe(true);
      expect((await backend.read(spanOf(b))).every((byte) => byte === 9)).toBe(true);
    }));
});
