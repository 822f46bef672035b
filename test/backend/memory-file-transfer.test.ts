import { type FileHandle, mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Transfer } from '../../src/backend/backend.js';
import { transferIntoMemory } from '../../src/backend/memory-file-transfer.js';
import { CaseRandom } from './contract/case-random.js';

const seed = 53;

describe(`transfers into memory (seed ${seed})`, () => {
  const bytes = new CaseRandom(seed, 0).bytes(100_000);
  let folder = '';
  let file: FileHandle;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'waybill-transfer-'));
    await writeFile(join(folder, 'weights'), bytes);
    file = await open(join(folder, 'weights'), 'r');
  });
  afterAll(async () => {
    await file.close();
    await rm(folder, { recursive: true });
  });

  /** Regions of the file, each landing at `at` of `memory`. */
  const move = (memory: Uint8Array, regions: { position: number; at: number; byteLength: number }[]) => {
    const buffer = {
      label: 'rows',
      cause: 'packet-rows',
      address: 64,
      byteLength: memory.byteLength,
    } as const;
    const transfers = regions.map(
      ({ position, at, byteLength }): Transfer => ({
        file: { path: join(folder, 'weights'), descriptor: file.fd },
        position,
        target: { buffer, byteOffset: at, byteLength },
      }),
    );
    return transferIntoMemory(transfers, ({ target }) =>
      memory.subarray(target.byteOffset, target.byteOffset + target.byteLength),
    );
  };

  it.each([
    ['an ArrayBuffer', () => new Uint8Array(100_000)],
    ['a SharedArrayBuffer', () => new Uint8Array(new SharedArrayBuffer(100_000))],
  ])('fill %s region by region, more at once than reads in flight', async (_, allocate) => {
    const memory = allocate();
    const wanted = new Uint8Array(100_000);
    const regions = Array.from({ length: 90 }, (_unused, index) => {
      const byteLength = (index * 37) % 1001;
      const region = { position: (index * 977) % 99_000, at: index * 1100, byteLength };
      wanted.set(bytes.subarray(region.position, region.position + byteLength), region.at);
      return region;
    });
    const report = await move(memory, regions);
    expect(report.requestedBytes).toBe(regions.reduce((sum, { byteLength }) => sum + byteLength, 0));
    expect(Buffer.compare(Buffer.from(memory), wanted)).toBe(0);
  });

  it('reject a short read with what was asked for, and write nothing after that', async () => {
    const memory = new Uint8Array(100_000);
    const regions = [
      { position: 99_990, at: 0, byteLength: 11 },
      ...Array.from({ length: 40 }, (_, index) => ({ position: 0, at: 1000 * (index + 1), byteLength: 500 })),
    ];
    await expect(move(memory, regions)).rejects.toMatchObject({
      name: 'ExecutionError',
      code: 'short-read',
      message: `Cannot read 11 bytes at 99990 of "${join(folder, 'weights')}": the file ended after 10 of them`,
      data: { position: '99990', byteLength: '11' },
    });
    const then = memory.slice();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(Buffer.compare(memory, then)).toBe(0);
  });

  it('reject what the system refuses', async () => {
    const writeOnly = await open(join(folder, 'weights'), 'a');
    const target = {
      buffer: { label: 'rows', cause: 'packet-rows', address: 64, byteLength: 4 },
      byteOffset: 0,
      byteLength: 4,
    } as const;
    const moving = transferIntoMemory(
      [{ file: { path: 'write-only', descriptor: writeOnly.fd }, position: 0, target }],
      () => new Uint8Array(4),
    );
    await expect(moving).rejects.toMatchObject({ code: 'read-failed', data: { path: 'write-only' } });
    await writeOnly.close();
  });
});
