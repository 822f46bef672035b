import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Backend, TransferFile } from '../../../src/backend/backend.js';
import { spanOf, subspan } from '../../../src/memory/buffers.js';
import { CaseRandom } from './case-random.js';

/** Buffers, host copies, file transfers and closing: what a backend promises beside arithmetic. */
export function storageContract(seed: number, open: () => Promise<Backend>): void {
  const random = new CaseRandom(seed, 0);
  const fileBytes = random.bytes(300_001);
  let folder = '';
  let handle: Awaited<ReturnType<typeof openFile>>;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'waybill-contract-'));
    await writeFile(join(folder, 'weights'), fileBytes);
    handle = await openFile(join(folder, 'weights'));
  });
  afterAll(async () => {
    await handle.close();
    await rm(folder, { recursive: true });
  });

  const withBackend = async (use: (backend: Backend) => Promise<void>): Promise<void> => {
    const backend = await open();
    try {
      await use(backend);
    } finally {
      await backend.close();
    }
  };
  const room = (backend: Backend, byteLength: number, label = 'room') =>
    backend.allocate({ label, cause: 'staging', byteLength });

  it('allocates zeroed buffers aligned to 64, and bytes come back as written', () =>
    withBackend(async (backend) => {
      for (const byteLength of [4, 60, 64, 65, 4096, 1_000_000]) {
        const buffer = room(backend, byteLength);
        expect(buffer.address % 64).toBe(0);
        expect(buffer.address).toBeGreaterThan(0);
        expect(Buffer.from(await backend.read(spanOf(buffer))).every((byte) => byte === 0)).toBe(true);
        const bytes = random.bytes(byteLength);
        backend.write(spanOf(buffer), bytes);
        expect(Buffer.compare(await backend.read(spanOf(buffer)), bytes)).toBe(0);
        backend.release(buffer);
        const again = room(backend, byteLength);
        expect(Buffer.from(await backend.read(spanOf(again))).every((byte) => byte === 0)).toBe(true);
      }
    }));

  it('writes and reads parts of a buffer, and leaves the rest', () =>
    withBackend(async (backend) => {
      const buffer = room(backend, 1000);
      const expected = random.bytes(1000).slice();
      backend.write(spanOf(buffer), expected);
      for (const [at, length] of [
        [4, 8],
        [100, 3],
        [996, 4],
        [0, 1000],
        [500, 0],
      ] as const) {
        const bytes = random.bytes(length);
        backend.write(subspan(spanOf(buffer), at, length), bytes);
        expected.set(bytes, at);
        expect(Buffer.compare(await backend.read(subspan(spanOf(buffer), at, length)), bytes)).toBe(0);
      }
      expect(Buffer.compare(await backend.read(spanOf(buffer)), expected)).toBe(0);
    }));

  it('reads what earlier submissions wrote, in their order, without waiting in between', () =>
    withBackend(async (backend) => {
      const a = room(backend, 4000);
      backend.write(spanOf(a), new Uint8Array(new Float32Array(1000).fill(1).buffer));
      const add = { kind: 'add', count: 1000, a: spanOf(a), b: spanOf(a), out: spanOf(a) } as const;
      const running = Array.from({ length: 20 }, () => backend.submit([{ op: add, label: 'double' }]));
      const bytes = await backend.read(spanOf(a));
      expect([...new Float32Array(bytes.slice().buffer)].every((value) => value === 2 ** 20)).toBe(true);
      await Promise.all(running);
      await backend.submit([]);
    }));

  it('moves file regions into buffers beside running submissions', () =>
    withBackend(async (backend) => {
      const file: TransferFile = { path: join(folder, 'weights'), descriptor: handle.fd };
      const buffer = room(backend, 400_000, 'rows');
      const expected = new Uint8Array(400_000);
      const regions: { position: number; at: number; byteLength: number }[] = [];
      for (let at = 0; regions.length < 200; ) {
        const byteLength = random.chance(0.1) ? 0 : 1 + random.below(1900);
        const position = random.below(fileBytes.byteLength - byteLength);
        expected.set(fileBytes.subarray(position, position + byteLength), at);
        regions.push({ position, at, byteLength });
        at += Math.ceil(byteLength / 4) * 4;
      }
      backend.prefetch(file, regions);
      const other = room(backend, 40_000, 'other');
      const add = {
        kind: 'add',
        count: 10_000,
        a: spanOf(other),
        b: spanOf(other),
        out: spanOf(other),
      } as const;
      const running = backend.submit([{ op: add, label: 'beside' }]);
      const report = await backend.transfer(
        regions.map(({ position, at, byteLength }) => ({
          file,
          position,
          target: subspan(spanOf(buffer), at, byteLength),
        })),
      );
      await running;
      expect(report.requestedBytes).toBe(regions.reduce((sum, { byteLength }) => sum + byteLength, 0));
      expect(report.elapsedNs).toBeGreaterThanOrEqual(0n);
      expect(Buffer.compare(await backend.read(spanOf(buffer)), expected)).toBe(0);
      const whole = room(backend, fileBytes.byteLength, 'whole');
      await backend.transfer([{ file, position: 0, target: spanOf(whole) }]);
      expect(Buffer.compare(await backend.read(spanOf(whole)), fileBytes)).toBe(0);
      expect((await backend.transfer([])).requestedBytes).toBe(0);
    }));

  it('rejects a read beyond the end of the file, and goes on working', () =>
    withBackend(async (backend) => {
      const file: TransferFile = { path: join(folder, 'weights'), descriptor: handle.fd };
      const buffer = room(backend, 4096, 'tail');
      for (const position of [fileBytes.byteLength - 4095, fileBytes.byteLength, fileBytes.byteLength + 10]) {
        const failing = backend.transfer([
          { file, position: 0, target: subspan(spanOf(buffer), 0, 16) },
          { file, position, target: spanOf(buffer) },
        ]);
        await expect(failing).rejects.toMatchObject({ name: 'ExecutionError', code: 'short-read' });
        await expect(failing).rejects.toThrow(`"${file.path}"`);
      }
      await backend.transfer([{ file, position: fileBytes.byteLength - 4096, target: spanOf(buffer) }]);
      expect(Buffer.compare(await backend.read(spanOf(buffer)), fileBytes.subarray(-4096))).toBe(0);
    }));

  it('refuses released buffers, wrong lengths and work after closing; closes twice', async () => {
    const backend = await open();
    const buffer = room(backend, 64);
    const kept = room(backend, 64);
    expect(() => backend.write(spanOf(buffer), new Uint8Array(63))).toThrow(RangeError);
    backend.release(buffer);
    expect(() => backend.release(buffer)).toThrow(RangeError);
    expect(() => backend.write(spanOf(buffer), new Uint8Array(64))).toThrow(RangeError);
    await expect(backend.read(spanOf(buffer))).rejects.toThrow(RangeError);
    await Promise.all([backend.close(), backend.close()]);
    await backend.close();
    const closed = { name: 'ExecutionError', code: 'backend-closed' };
    await expect(backend.read(spanOf(kept))).rejects.toMatchObject(closed);
    expect(() => backend.allocate({ label: 'late', cause: 'staging', byteLength: 4 })).toThrow(
      expect.objectContaining(closed),
    );
  });
}

function openFile(path: string) {
  return open(path, 'r');
}
