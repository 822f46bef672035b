import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { InterruptedError, TamperedError } from '../base/errors.js';

/** Bytes of a file and the digest that a manifest states of them. */
export interface DigestedBytes {
  readonly id: string;
  readonly byteOffset: number;
  readonly byteLength: number;
  readonly sha256: string;
}

/**
 * Compares a manifest's SHA-256 with the line that `sha256sum` would print of it, which lies beside it. Throws `TamperedError`
 * `manifest-digest`.
 */
export function requireStatedDigest(
  directory: string,
  names: { readonly manifest: string; readonly digest: string },
  actual: string,
  line: string,
): void {
  const stated = line.slice(0, 64);
  if (stated === actual) return;
  throw new TamperedError(
    'manifest-digest',
    `Cannot trust "${join(directory, names.manifest)}": its SHA-256 is ${actual}, "${names.digest}" says ${JSON.stringify(stated)}; delete the directory to prepare it anew`,
    { directory, actual, stated },
  );
}

const chunkBytes = 4 * 1024 * 1024;

/** Reads all of them. Throws `TamperedError` `tensor-digest` at the first that differs; `InterruptedError`. */
export async function verifyDigests(
  file: FileHandle,
  path: string,
  entries: readonly DigestedBytes[],
  {
    signal,
    onProgress,
  }: {
    readonly signal?: AbortSignal | undefined;
    readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  },
): Promise<void> {
  const totalBytes = entries.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const chunk = new Uint8Array(chunkBytes);
  let doneBytes = 0;
  for (const { id, byteOffset, byteLength, sha256 } of entries) {
    const hash = createHash('sha256');
    for (let offset = 0; offset < byteLength; ) {
      if (signal?.aborted === true)
        throw new InterruptedError('interrupted', `Cannot verify "${path}": cancelled`);
      const wanted = Math.min(chunk.length, byteLength - offset);
      const { bytesRead } = await file.read(chunk, 0, wanted, byteOffset + offset);
      if (bytesRead === 0) break;
      hash.update(chunk.subarray(0, bytesRead));
      offset += bytesRead;
      doneBytes += bytesRead;
      onProgress?.(doneBytes, totalBytes);
    }
    const actual = hash.digest('hex');
    if (actual === sha256) continue;
    throw new TamperedError(
      'tensor-digest',
      `Cannot trust "${id}" of "${path}": its ${byteLength} bytes from ${byteOffset} have the SHA-256 ${actual}, the manifest says ${sha256}`,
      {
        path,
        tensor: id,
        byteOffset: String(byteOffset),
        byteLength: String(byteLength),
        actual,
        stated: sha256,
      },
    );
  }
}
