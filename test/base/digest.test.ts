import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fileDigest, littleEndianBytes, logitsDigest, sha256Hex } from '../../src/base/digest.js';
import { DefectError } from '../../src/base/errors.js';

describe('digests', () => {
  let folder = '';
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'waybill-digest-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  it('are SHA-256 in hex (FIPS 180-2, appendix B)', () => {
    expect(sha256Hex(Buffer.from('abc'))).toBe(
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    );
  });

  it.each([0, 1, 2 ** 20, 2 ** 20 + 1, 3_000_001])(
    'of a file of %d bytes are those of its bytes',
    async (byteLength) => {
      const bytes = new Uint8Array(byteLength).map((_, index) => (index * 31 + (index >> 8)) & 255);
      const path = join(folder, String(byteLength));
      await writeFile(path, bytes);
      let heard = 0;
      const digest = await fileDigest(path, { onBytes: (count) => (heard += count) });
      expect(digest).toBe(sha256Hex(bytes));
      expect(heard).toBe(byteLength);
    },
  );

  it('of a file end on a signal and reject where there is no file', async () => {
    const path = join(folder, 'some');
    await writeFile(path, 'some');
    const reason = new Error('stopped');
    await expect(fileDigest(path, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(fileDigest(join(folder, 'none'))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('of logits are those of their little-endian bytes, of a view too', () => {
    const row = Float32Array.of(9, 1, -2, 0.5, 9).subarray(1, 4);
    expect([...littleEndianBytes(row)]).toEqual([0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f]);
    expect(logitsDigest(row)).toBe(sha256Hex(Buffer.from('0000803f000000c00000003f', 'hex')));
    expect(logitsDigest(Float32Array.of(0))).not.toBe(logitsDigest(Float32Array.of(-0)));
  });

  it('are never taken of NaN', () => {
    expect(() => logitsDigest(Float32Array.of(1, Number.NaN))).toThrow(DefectError);
  });
});
