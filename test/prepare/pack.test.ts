import { createHash } from 'node:crypto';
import { type FileHandle, mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';
import { PackBuffers, packCopy, packTransposed, tileShape } from '../../src/checkpoint/matrix-pack.js';
import { NonFiniteSearch } from '../../src/checkpoint/non-finite.js';
import { openOrPrepare } from '../../src/checkpoint/open-or-prepare.js';
import { packVector } from '../../src/checkpoint/vector-pack.js';
import { transposed } from './source-tensors.js';

let root: string;
let file: FileHandle;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'waybill-pack-'));
  file = await open(join(root, 'weights'), 'wx+');
});
afterAll(async () => {
  await file.close();
  await rm(root, { recursive: true, force: true });
});

const seed = 20260302;
const types = fc.constantFrom('f32' as const, 'f16' as const, 'bf16' as const);
const sizeOf = { f32: 4, f16: 2, bf16: 2 };

/** A tensor of arbitrary bit patterns, and a reader that hands it out. */
function randomTensor(byteLength: number, salt: number) {
  const bytes = new Uint8Array(byteLength);
  let state = (salt ^ 0x9e3779b9) >>> 0;
  for (let index = 0; index < byteLength; index++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[index] = state >>> 24;
  }
  const read = async (byteOffset: number, target: Uint8Array) => {
    expect(byteOffset + target.length).toBeLessThanOrEqual(byteLength);
    target.set(bytes.subarray(byteOffset, byteOffset + target.length));
  };
  return { bytes, read };
}

const byteOffset = 4096;

async function written(byteLength: number): Promise<Buffer> {
  const bytes = Buffer.alloc(byteLength);
  if (byteLength > 0) await file.read(bytes, 0, byteLength, byteOffset);
  return bytes;
}

test('any shape is transposed within any buffer', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 150 }),
      fc.integer({ min: 1, max: 150 }),
      types,
      fc.integer({ min: 32, max: 40_000 }),
      fc.integer(),
      async (rows, columns, type, bufferBytes, salt) => {
        const size = sizeOf[type];
        const byteLength = rows * columns * size;
        const { bytes, read } = randomTensor(byteLength, salt);
        let wroteBytes = 0;
        const target = {
          descriptor: file.fd,
          byteOffset,
          wrote: (count: number) => {
            wroteBytes += count;
          },
        };
        const packed = await packTransposed(read, rows, columns, type, target, new PackBuffers(bufferBytes));
        const wanted = transposed(bytes, rows, columns, size);
        expect((await written(byteLength)).equals(wanted)).toBe(true);
        expect(packed.sha256).toBe(createHash('sha256').update(wanted).digest('hex'));
        expect(packed.nonFinite).toEqual(nonFiniteOf(bytes, type, columns));
        expect(wroteBytes).toBe(byteLength);
      },
    ),
    { seed, numRuns: 80 },
  );
});

test('any table is copied within any buffer', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 90 }),
      fc.integer({ min: 1, max: 90 }),
      types,
      fc.integer({ min: 32, max: 20_000 }),
      fc.integer(),
      async (rows, columns, type, bufferBytes, salt) => {
        const byteLength = rows * columns * sizeOf[type];
        const { bytes, read } = randomTensor(byteLength, salt);
        const target = { descriptor: file.fd, byteOffset, wrote: () => {} };
        const packed = await packCopy(read, rows, columns, type, target, new PackBuffers(bufferBytes));
        expect((await written(byteLength)).equals(Buffer.from(bytes))).toBe(true);
        expect(packed.sha256).toBe(createHash('sha256').update(bytes).digest('hex'));
        expect(packed.nonFinite).toEqual(nonFiniteOf(bytes, type, columns));
      },
    ),
    { seed, numRuns: 60 },
  );
});

/** By the value of each element, one at a time. */
function nonFiniteOf(bytes: Uint8Array, type: 'f32' | 'f16' | 'bf16', columns: number) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let count = 0;
  let first: { row: number; column: number; value: string } | null = null;
  for (let index = 0; index < bytes.length / sizeOf[type]; index++) {
    const bits =
      type === 'f32'
        ? view.getUint32(4 * index, true)
        : type === 'bf16'
          ? view.getUint16(2 * index, true) * 65536
          : halfToSinglePattern(view.getUint16(2 * index, true));
    const single = new DataView(new ArrayBuffer(4));
    single.setUint32(0, bits);
    const value = single.getFloat32(0);
    if (Number.isFinite(value)) continue;
    count++;
    first ??= { row: Math.floor(index / columns), column: index % columns, value: String(value) };
  }
  return first === null ? null : { count, first };
}

/** A single that is finite, infinite or NaN exactly as the half is. */
function halfToSinglePattern(half: number): number {
  const sign = half >= 0x8000 ? 0x80000000 : 0;
  if ((half & 0x7c00) !== 0x7c00) return sign;
  return sign + 0x7f800000 + (half & 0x3ff);
}

describe('tiles', () => {
  test('never pass the buffer and cover every size', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2_000_000 }),
        fc.integer({ min: 1, max: 2_000_000 }),
        fc.constantFrom(2, 4),
        fc.integer({ min: 16, max: 1 << 25 }),
        (rows, columns, elementBytes, byteLength) => {
          const tile = tileShape(rows, columns, elementBytes, byteLength);
          expect(tile.rows * tile.columns * elementBytes).toBeLessThanOrEqual(byteLength);
          expect(tile.rows >= 1 && tile.columns >= 1).toBe(true);
          expect(tile.rows <= rows && tile.columns <= columns).toBe(true);
        },
      ),
      { seed },
    );
  });

  test('of a large head are bands of whole rows, whose segments are worth a write', () => {
    const tile = tileShape(50272, 2048, 2, 1 << 25);
    expect(tile).toEqual({ rows: 8192, columns: 2048 });
  });

  test('of very wide matrices split rows and keep segments of 4 KiB', () => {
    const tile = tileShape(100_000, 1_000_000, 2, 1 << 25);
    expect(tile).toEqual({ rows: 2048, columns: 8192 });
  });
});

describe('vectors', () => {
  test('layernorm1p adds one in binary32', async () => {
    const gamma = Float32Array.of(0, -1, 1e-8, 2 ** -24, 3 * 2 ** -24, 0.1, -0.30000001192092896);
    const bytes = new Uint8Array(gamma.buffer);
    const read = async (from: number, target: Uint8Array) =>
      target.set(bytes.subarray(from, from + target.length));
    const target = { descriptor: file.fd, byteOffset, wrote: () => {} };
    await packVector(read, gamma.length, 'f32', 1, target);
    const stored = await written(4 * gamma.length);
    const wanted = [1, 0, 1, 1, 1 + 2 ** -22, Math.fround(1.1), Math.fround(1 - 0.30000001192092896)];
    gamma.forEach((_, index) => {
      expect(stored.readFloatLE(4 * index)).toBe(wanted[index]);
    });
  });
});

test('pieces that begin between two words are searched whole', () => {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  for (let index = 0; index < 8; index++) {
    bytes.fill(0);
    view.setUint16(2 * index, 0x7c00, true);
    for (const [begin, end] of [
      [0, 8],
      [1, 8],
      [1, 7],
      [0, 7],
      [index, index + 1],
    ] as const) {
      const search = new NonFiniteSearch('f16', 8);
      search.scan(bytes.subarray(2 * begin, 2 * end), begin);
      const inside = index >= begin && index < end;
      expect(search.result?.first.column).toBe(inside ? index : undefined);
    }
  }
});

test('a torch checkpoint is packed as its tensors read', async () => {
  const folder = 'test/fixtures/layouts/opt-bin';
  const { prepared } = await openOrPrepare(folder, { environment: { HF_HOME: root } });
  const weights = await readFile(prepared.weightsFile.path);
  const checkpoint = await openCheckpoint(folder);
  for (const { id, inputs, outputs, layout, sourceTensor } of checkpoint.description.matrices) {
    const bytes = await checkpoint.readTensor(checkpoint.tensor(sourceTensor));
    const wanted =
      layout === 'input-major' ? transposed(bytes, outputs, inputs, bytes.length / inputs / outputs) : bytes;
    const { byteOffset: begin, byteLength } = prepared.tensor(id);
    expect(weights.subarray(begin, begin + byteLength).equals(wanted), id).toBe(true);
  }
  await Promise.all([checkpoint.close(), prepared.close()]);
});
