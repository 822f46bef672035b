import { constants, type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { ExecutionError, InputError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';

/**
 * An open file of a checkpoint, read by position and never as a whole. Symbolic links are followed, as hub snapshots
 * need; the name itself was checked to stay inside the folder.
 */
export interface WeightFile {
  readonly name: string;
  readonly path: string;
  readonly byteLength: number;
  /** Fills `target` from `byteOffset`. Throws `ExecutionError` `short-read` where the file ends first. */
  read(byteOffset: number, target: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

/** Throws `InputError` `file-missing` or `file-unreadable`. */
export async function openWeightFile(directory: string, name: string): Promise<WeightFile> {
  const path = join(directory, name);
  const handle = await openRegular(path, name);
  let byteLength: number;
  try {
    const stat = await handle.stat();
    if (!stat.isFile()) throw notAFile(name);
    byteLength = stat.size;
  } catch (cause) {
    await handle.close();
    throw cause;
  }
  return {
    name,
    path,
    byteLength,
    read: (byteOffset, target) => readFully(handle, name, byteOffset, target),
    close: () => handle.close(),
  };
}

async function openRegular(path: string, name: string): Promise<FileHandle> {
  try {
    // Without O_NONBLOCK, opening a named pipe would wait for its writer for ever.
    return await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    const missing = code === 'ENOENT' || code === 'ENOTDIR';
    throw new InputError(
      missing ? 'file-missing' : 'file-unreadable',
      missing
        ? `Opening "${name}" failed: the file is absent from the checkpoint folder`
        : `Opening "${name}" failed: ${failureReason(cause)}`,
      { file: name, path },
      { cause },
    );
  }
}

/** The error of a folder, pipe or device in place of a file. */
export function notAFile(name: string): InputError {
  return new InputError('file-unreadable', `Opening "${name}" failed: it is not a regular file`, {
    file: name,
  });
}

/** One read returns at most this much: Linux caps a read at 2 GiB - 4 KiB. */
const largestRead = 1024 * 1024 * 1024;

async function readFully(
  handle: FileHandle,
  name: string,
  byteOffset: number,
  target: Uint8Array,
): Promise<void> {
  let done = 0;
  while (done < target.byteLength) {
    const length = Math.min(target.byteLength - done, largestRead);
    const { bytesRead } = await handle.read(target, done, length, byteOffset + done);
    if (bytesRead === 0) {
      throw new ExecutionError(
        'short-read',
        `Reading ${target.byteLength} bytes of "${name}" at byte ${byteOffset} failed: the file ended after ${done}`,
        { file: name, byteOffset, wantedBytes: target.byteLength, readBytes: done },
      );
    }
    done += bytesRead;
  }
}
