import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { endianness } from 'node:os';
import { DefectError } from './errors.js';

/** SHA-256 as 64 lower-case hex digits. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

const readBytes = 1 << 20;

/**
 * SHA-256 of a file's bytes, read piece by piece; `onBytes` hears how many each piece had, `signal` ends it early.
 * Rejects with the error of the file system, or with the signal's reason.
 */
export async function fileDigest(
  path: string,
  options: { onBytes?: (byteLength: number) => void; signal?: AbortSignal } = {},
): Promise<string> {
  const hash = createHash('sha256');
  const buffer = new Uint8Array(readBytes);
  const file = await open(path, 'r');
  try {
    for (;;) {
      options.signal?.throwIfAborted();
      const { bytesRead } = await file.read(buffer, 0, readBytes, null);
      if (bytesRead === 0) return hash.digest('hex');
      hash.update(buffer.subarray(0, bytesRead));
      options.onBytes?.(bytesRead);
    }
  } finally {
    await file.close();
  }
}

/**
 * SHA-256 over a row of logits (ids 0 to vocabulary - 1, before temperature) as little-endian binary32. The row has
 * been checked for non-finite logits; NaN here is a defect, because its bits are not part of the arithmetic contract.
 */
export function logitsDigest(row: Float32Array): string {
  for (let id = 0; id < row.length; id++) {
    if (Number.isNaN(row[id]!)) throw new DefectError(`Cannot digest logits: id ${id} is NaN`, { id });
  }
  return sha256Hex(littleEndianBytes(row));
}

/** The bytes of binary32 values, little-endian on every machine; a view where the machine is. */
export function littleEndianBytes(values: Float32Array): Uint8Array {
  if (endianness() === 'LE') return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const bytes = Buffer.from(values.slice().buffer);
  return bytes.swap32();
}
