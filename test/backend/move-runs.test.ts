import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import {
  movesTogether,
  piecesOf,
  planMoveRuns,
  runBytes,
  writeRuns,
} from '../../src/backend/cuda/move-runs.js';
import { type Span, spanOf, subspan } from '../../src/memory/buffers.js';
import { FakeDriver, openFake } from './cuda-fake-driver.js';

const rowBytes = 320;
const rows = 400;

describe('runs of rows on their way to the device', () => {
  let folder: string;
  let file: { path: string; descriptor: number };
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'waybill-runs-'));
    const path = join(folder, 'weights');
    writeFileSync(path, new Uint8Array(rows * rowBytes));
    file = { path, descriptor: openSync(path, 'r') };
  });
  afterAll(() => {
    closeSync(file.descriptor);
    rmSync(folder, { recursive: true });
  });

  async function open(): Promise<{ fake: FakeDriver; gpu: CudaBackend; arena: Span }> {
    const fake = new FakeDriver();
    fake.faults.pinnedBytes = 1 << 28;
    const gpu = openFake(fake);
    const request = { cause: 'dense-weights', byteLength: rows * rowBytes } as const;
    await gpu.hostTier.mirror(file, 0, { ...request, label: 'layers.0.second' });
    return { fake, gpu, arena: spanOf(gpu.allocate({ ...request, label: 'row arena 0' })) };
  }

  const every = (count: number, step: number, arena: Span) =>
    Array.from({ length: count }, (_, index) => ({
      file,
      position: index * step * rowBytes,
      target: subspan(arena, index * rowBytes, rowBytes),
    }));

  it('many small ones are one launch, few are copied each alone', async () => {
    const { fake, gpu, arena } = await open();
    const report = await gpu.transfer(every(30, 3, arena));
    expect(report.requestedBytes).toBe(30 * rowBytes);
    expect(fake.launched).toEqual(['move_runs']);
    await gpu.transfer(every(3, 3, arena));
    expect(fake.launched).toEqual(['move_runs']);
    expect(fake.copied).toBe(3);
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it('the list lies in memory that the backend has reckoned with, and is free again behind', async () => {
    const { fake, gpu, arena } = await open();
    const before = gpu.usage.pinnedBytes;
    for (let turn = 0; turn < 20; turn += 1) await gpu.transfer(every(30, 3, arena));
    expect(gpu.usage.pinnedBytes - before).toBeLessThanOrEqual(gpu.hostTier.bounceBytes!);
    expect(fake.launched).toHaveLength(20);
    const together = Array.from({ length: 12 }, () => gpu.transfer(every(30, 3, arena)));
    await Promise.all(together);
    expect(fake.copied % 30).toBe(0); // of those that found no memory for a list
    expect(fake.launched.length * 30 + fake.copied).toBe(32 * 30);
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it('within the device they are one launch, too', async () => {
    const { fake, gpu, arena } = await open();
    const other = spanOf(gpu.allocate({ label: 'other', cause: 'workspace', byteLength: rows * rowBytes }));
    const moves = Array.from({ length: 40 }, (_, index) => ({
      from: subspan(arena, index * rowBytes, rowBytes),
      to: subspan(other, 5 * index * rowBytes, rowBytes),
    }));
    await gpu.hostTier.moveWithin!(moves);
    await gpu.hostTier.moveWithin!([]);
    expect(fake.launched).toEqual(['move_runs']);
    expect(fake.copied).toBe(0);
    const short = { from: subspan(arena, 0, 8), to: subspan(other, 0, 4) };
    await expect(gpu.hostTier.moveWithin!([short])).rejects.toThrow(
      'Cannot move 8 bytes of "row arena 0": "other" has room for 4',
    );
    const gone = { from: short.to, to: subspan(arena, 0, 4) };
    gpu.release(other.buffer);
    await expect(gpu.hostTier.moveWithin!([gone])).rejects.toThrow('Cannot move "other"');
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it('a kernel that cannot be launched, or fails, is named', async () => {
    const { fake, gpu, arena } = await open();
    await gpu.transfer(every(30, 3, arena)); // makes the event that the failure is seen at
    fake.faults.refused = { kernel: 'move_runs', code: 1 };
    await expect(gpu.transfer(every(30, 3, arena))).rejects.toMatchObject({
      code: 'kernel-failed',
      message: expect.stringContaining('"move_runs"'),
    });
    fake.faults.refused = null;
    fake.faults.fatal = { kernel: 'move_runs', code: 700 };
    await expect(gpu.transfer(every(30, 3, arena))).rejects.toMatchObject({
      code: 'gpu-failed',
      message: expect.stringContaining('while it ran "move_runs" for "row arena 0"'),
    });
    await gpu.close();
    expect(fake.live).toEqual({});
  });
});

describe('lists of runs', () => {
  const run = fc.record({
    source: fc.integer({ min: 0, max: 2 ** 47 }),
    target: fc.integer({ min: 0, max: 2 ** 47 }),
    byteLength: fc.integer({ min: 1, max: 100_000 }),
  });

  it('hold each byte once, in order, in pieces of at most 16 KiB', () => {
    fc.assert(
      fc.property(fc.array(run, { maxLength: 5 }), (runs) => {
        const count = piecesOf(runs);
        if (count > 0)
          expect(() => writeRuns(runs, new Uint8Array(count * runBytes - 1))).toThrow(RangeError);
        const bytes = new Uint8Array(count * runBytes);
        writeRuns(runs, bytes);
        const words = Array.from(new BigUint64Array(bytes.buffer), Number);
        const expected: number[] = [];
        for (const { source, target, byteLength } of runs)
          for (let at = 0; at < byteLength; at += 16_384)
            expected.push(source + at, target + at, Math.min(16_384, byteLength - at));
        expect(words).toEqual(expected);
      }),
      { seed: 20261201 },
    );
  });

  it('few blocks of threads serve any number of pieces; long runs are for the copy engine', () => {
    expect(planMoveRuns(64, 3)).toMatchObject({ grid: [2, 1, 1], threads: 64, sharedBytes: 0 });
    expect(planMoveRuns(64, 100_000).grid).toEqual([64, 1, 1]);
    const of = (count: number, byteLength: number) =>
      Array.from({ length: count }, () => ({ source: 0, target: 0, byteLength }));
    expect(movesTogether(of(7, 5120))).toBe(false);
    expect(movesTogether(of(8, 5120))).toBe(true);
    expect(movesTogether(of(8, 1 << 20))).toBe(false);
    expect(movesTogether([])).toBe(false);
  });
});
