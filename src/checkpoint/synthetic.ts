import { createHash } from 'node:crypto';
import { open, readdir, statfs } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { makeFolders, storageError, systemCode, writeDirectoryAtomic } from '../base/atomic-file.js';
import { InterruptedError, SetupError } from '../base/errors.js';
import { writeFully } from './matrix-pack.js';
import { removeLeftovers, temporarySibling } from './prepare-lock.js';
import { sourceDigest } from './source-digest.js';
import { type SyntheticFile, syntheticFiles } from './synthetic-files.js';
import type { SyntheticOptions } from './synthetic-opt.js';

interface WorkOptions extends SyntheticOptions {
  readonly shardBytes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

export interface MakeOptions extends WorkOptions {
  /** Absent or an empty folder. */
  readonly directory: string;
}

/**
 * Writes an OPT checkpoint with seeded random weights in the Hugging Face layout (safetensors, no tokenizer), for tests
 * and benchmarks of any size; `syntheticTensors` says what its weights are. Equal options give equal bytes.
 * Returns the bytes of all weights. Throws `UsageError`, `SetupError` `disk-full`, `not-writable`, `directory-in-use`.
 */
export async function makeCheckpoint(options: MakeOptions): Promise<number> {
  const directory = resolve(options.directory);
  const files = syntheticFiles(options);
  const totalBytes = weightBytesOf(files);
  await makeFolders(dirname(directory), 'make', totalBytes);
  try {
    await removeLeftovers(directory);
    if (!(await isAbsentOrEmpty(directory))) throw inUse(directory);
    const { bavail, bsize } = await statfs(dirname(directory), { bigint: true });
    if (bavail * bsize < BigInt(totalBytes)) {
      throw new SetupError(
        'disk-full',
        `Cannot make "${directory}": ${totalBytes} bytes are needed, ${bavail * bsize} bytes are free`,
        { path: directory, neededBytes: String(totalBytes), freeBytes: String(bavail * bsize) },
      );
    }
  } catch (error) {
    throw storageError(error, 'make', directory, totalBytes);
  }
  const done = meter(options, totalBytes, `Cannot make "${directory}": cancelled`);
  const written = await writeDirectoryAtomic(directory, {
    temporary: temporarySibling(directory),
    neededBytes: totalBytes,
    fill: async (folder) => {
      for (const made of files) {
        const file = await open(join(folder, made.name), 'wx');
        let position = 0;
        try {
          for (const piece of made.pieces()) {
            writeFully(file.fd, piece, position);
            position += piece.byteLength;
            await done(made, piece);
          }
        } finally {
          await file.close();
        }
      }
    },
  });
  if (!written) throw inUse(directory);
  return totalBytes;
}

/**
 * The digest that a checkpoint of these options has as a source (`sourceDigest`), without a byte of it on disk; takes as
 * long as making it. Throws `UsageError`, `InterruptedError`.
 */
export async function syntheticSourceDigest(options: WorkOptions): Promise<string> {
  const files = syntheticFiles(options);
  const done = meter(options, weightBytesOf(files), 'Cannot hash a synthetic checkpoint: cancelled');
  const hashed = [];
  for (const made of files) {
    const hash = createHash('sha256');
    let byteLength = 0;
    for (const piece of made.pieces()) {
      hash.update(piece);
      byteLength += piece.byteLength;
      await done(made, piece);
    }
    hashed.push({ name: made.name, byteLength, sha256: hash.digest('hex') });
  }
  return sourceDigest(hashed);
}

function weightBytesOf(files: readonly SyntheticFile[]): number {
  return files.reduce((sum, { weightBytes }) => sum + weightBytes, 0);
}

/** Reports pieces of weights, lets other work in, and stops where it is asked to. Headers are too small to count. */
function meter({ onProgress, signal }: WorkOptions, totalBytes: number, cancelled: string) {
  let doneBytes = 0;
  return async ({ weightBytes }: SyntheticFile, piece: Uint8Array): Promise<void> => {
    if (weightBytes === 0) return;
    doneBytes = Math.min(totalBytes, doneBytes + piece.byteLength);
    onProgress?.(doneBytes, totalBytes);
    if (signal?.aborted === true) throw new InterruptedError('interrupted', cancelled);
    await setImmediate();
  };
}

function inUse(directory: string): SetupError {
  return new SetupError(
    'directory-in-use',
    `Cannot make "${directory}": it holds files, an absent or empty folder is wanted`,
    {
      directory,
    },
  );
}

async function isAbsentOrEmpty(directory: string): Promise<boolean> {
  try {
    return (await readdir(directory)).length === 0;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return true;
    throw error;
  }
}
