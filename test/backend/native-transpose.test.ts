import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { nativeTransposer } from '../../src/backend/cpu/native-transpose.js';
import { readFolder } from '../../src/checkpoint/low-bit-folder.js';
import { lowBitDirectory, openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { uniformLowBit } from '../../src/checkpoint/low-bit-plan.js';
import { transposeTile } from '../../src/checkpoint/transpose.js';
import { describe as describeModel, optConfig } from '../acquire/support/opt-shape.js';
import { writePrepared } from '../acquire/support/prepared-file.js';
import { CaseRandom } from './contract/case-random.js';

const seed = 20261205;
const folder = mkdtempSync(join(tmpdir(), 'waybill-transpose-'));
afterAll(() => rmSync(folder, { recursive: true }));
const readTransposed = nativeTransposer();

/** A file of `bytes` behind 12 other ones. */
function fileOf(bytes: Uint8Array): { path: string; descriptor: number; position: number } {
  const path = join(folder, 'matrix');
  writeFileSync(path, Buffer.concat([Buffer.alloc(12, 7), bytes]));
  return { path, descriptor: openSync(path, 'r'), position: 12 };
}

test.skipIf(!nativeStatus().available)(
  `native code turns matrices as transposeTile does, whatever their sides (seed ${seed})`,
  async () => {
    // The last ones are longer than what a call reads at once, and divided among calls.
    const sides = [1, 2, 7, 8, 9, 16, 63, 64, 65, 130, 300];
    const random = new CaseRandom(seed, 0);
    const shapes = Array.from({ length: 60 }, () => [random.pick(sides), random.pick(sides)] as const);
    for (const [rows, columns] of [...shapes, [1100, 1001], [130, 9001]] as const) {
      for (const elementBytes of [2, 4]) {
        const bytes = random.bytes(rows * columns * elementBytes);
        const expected = new ArrayBuffer(bytes.byteLength);
        transposeTile(bytes.slice().buffer, expected, rows, columns, elementBytes);
        const file = fileOf(bytes);
        const target = new Uint8Array(bytes.byteLength).fill(255);
        await readTransposed!({ ...file, rows, columns, elementBytes }, target);
        closeSync(file.descriptor);
        expect(
          Buffer.compare(target, new Uint8Array(expected)),
          `${rows} x ${columns} x ${elementBytes}`,
        ).toBe(0);
      }
    }
  },
);

test.skipIf(!nativeStatus().available)('a file that ends early, or cannot be read, is an error', async () => {
  const file = fileOf(new Uint8Array(600));
  const matrix = { ...file, rows: 20, columns: 20, elementBytes: 2 };
  const target = new Uint8Array(800);
  await expect(readTransposed!(matrix, target)).rejects.toMatchObject({
    name: 'ExecutionError',
    code: 'short-read',
    message: `Cannot read 800 bytes at 12 of "${file.path}": the file ended after 600 of them`,
  });
  closeSync(file.descriptor);
  await expect(readTransposed!({ ...matrix, descriptor: -1 }, target)).rejects.toMatchObject({
    name: 'ExecutionError',
    code: 'read-failed',
  });
  await expect(readTransposed!(matrix, new Uint8Array(799))).rejects.toThrow(RangeError);
});

test.skipIf(!nativeStatus().available)(
  'neuron-major rows on disk have one digest, whoever turns them',
  async () => {
    const shape = { hiddenSize: 40, ffnSize: 700, layers: 2, heads: 2, vocabSize: 30, maxPositions: 20 };
    const description = describeModel(optConfig(shape), 'f16');
    const plan = uniformLowBit(description, () => true, 'int8');
    const digests: string[][] = [];
    for (const turn of [undefined, readTransposed]) {
      const prepared = writePrepared(description, 5, () => 'mixed');
      const lowBit = await openLowBit(prepared, plan, { readTransposed: turn });
      await lowBit.close();
      await (await openLowBit(prepared, plan, { verify: true })).close();
      const manifest = await readFolder(join(prepared.directory, lowBitDirectory, 'rows'));
      digests.push(manifest!.entries.map(({ sha256 }) => sha256));
      await prepared.close();
    }
    expect(digests[0]!.length).toBeGreaterThan(0);
    expect(digests[1]).toEqual(digests[0]);
  },
);
