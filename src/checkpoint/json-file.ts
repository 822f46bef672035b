import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { InputError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { type JsonValue, parseJson } from '../base/json.js';
import { notAFile } from './weight-file.js';

/** Indexes of the largest public checkpoints are a few MB; a config a few KB. */
const largestBytes = 64 * 1024 * 1024;

/** Reads a small JSON file of a checkpoint folder; null where it is absent. Throws `InputError`, also for a file that holds `null`. */
export async function readJsonFile(directory: string, name: string): Promise<JsonValue | null> {
  const path = join(directory, name);
  let bytes: Uint8Array;
  try {
    const status = await stat(path);
    const { size } = status;
    // Reading a named pipe would wait for its writer for ever.
    if (!status.isFile()) throw notAFile(name);
    if (size > largestBytes) {
      throw new InputError(
        'json-too-long',
        `Reading "${name}" failed: it holds ${size} bytes, at most ${largestBytes} are read`,
        { file: name, byteLength: size, limit: largestBytes },
      );
    }
    bytes = await readFile(path);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (cause instanceof InputError) throw cause;
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw new InputError(
      'file-unreadable',
      `Reading "${name}" failed: ${failureReason(cause)}`,
      { file: name },
      { cause },
    );
  }
  const value = parseJson(bytes, name);
  // Null stands for an absent file here; what such a file means is nobody's guess.
  if (value === null) {
    throw new InputError('json-null', `Reading "${name}" failed: it holds null, an object is wanted`, {
      file: name,
    });
  }
  return value;
}
