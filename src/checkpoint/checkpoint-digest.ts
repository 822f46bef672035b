import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { InputError } from '../base/errors.js';
import type { CheckpointFile } from './checkpoint-files.js';

export interface FileDigest {
  readonly name: string;
  readonly byteLength: number;
  readonly sha256: string;
}

/** Called after each piece that was read. */
export type DigestProgress = (doneBytes: number, totalBytes: number) => void;

/**
 * SHA-256 of every file that decides what a checkpoint computes, in the order of `files` (by name), streaming. Symbolic
 * links are followed. Throws `InputError` `file-changed` where a file's length is no longer what it was when opened.
 */
export async function fileDigests(
  checkpoint: { readonly files: readonly CheckpointFile[] },
  onProgress?: DigestProgress,
  signal?: AbortSignal,
): Promise<FileDigest[]> {
  const totalBytes = checkpoint.files.reduce((sum, file) => sum + file.byteLength, 0);
  let doneBytes = 0;
  const digests: FileDigest[] = [];
  for (const { name, path, byteLength } of checkpoint.files) {
    const hash = createHash('sha256');
    const stream = createReadStream(path, { highWaterMark: 1024 * 1024, ...(signal ? { signal } : {}) });
    let fileBytes = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      hash.update(chunk);
      fileBytes += chunk.byteLength;
      doneBytes += chunk.byteLength;
      onProgress?.(doneBytes, totalBytes);
    }
    if (fileBytes !== byteLength) {
      throw new InputError(
        'file-changed',
        `Hashing "${name}" failed: it holds ${fileBytes} bytes, it held ${byteLength} when the checkpoint was opened`,
        { file: name, byteLength: fileBytes, openedByteLength: byteLength },
      );
    }
    digests.push({ name, byteLength, sha256: hash.digest('hex') });
  }
  return digests;
}
