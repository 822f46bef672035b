import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonValue } from '../base/json.js';
import { show } from './config-fields.js';

/** Which file holds which tensor, as `*.index.json` says. */
export interface ShardIndex {
  readonly fileOf: ReadonlyMap<string, string>;
  /** File names in order of first mention, each once. */
  readonly files: readonly string[];
}

/**
 * Reads `weight_map` of a shard index. File names are judged as text, so that a hub snapshot's symbolic links work while
 * a name cannot leave the folder. Throws `InputError`: `index-malformed`, `index-outside-folder`.
 */
export function parseShardIndex(index: JsonValue, name: string): ShardIndex {
  const map = isJsonObject(index) ? index.weight_map : undefined;
  if (!isJsonObject(map)) {
    throw new InputError(
      'index-malformed',
      `Reading "${name}" failed: "weight_map" is ${show(map)}, an object of file names is wanted`,
      {
        file: name,
      },
    );
  }
  const fileOf = new Map<string, string>();
  for (const [tensor, file] of Object.entries(map)) {
    if (typeof file !== 'string' || file === '') {
      throw new InputError(
        'index-malformed',
        `Reading "${name}" failed: "weight_map" gives ${JSON.stringify(tensor)} the file ${show(file)}, a file name is wanted`,
        { file: name, tensor },
      );
    }
    if (!staysInside(file)) {
      throw new InputError(
        'index-outside-folder',
        `Reading "${name}" failed: ${JSON.stringify(tensor)} lies in ${show(file)}, a file name inside the checkpoint folder is wanted`,
        { file: name, tensor, shard: file },
      );
    }
    fileOf.set(tensor, file);
  }
  if (fileOf.size === 0) {
    throw new InputError('index-malformed', `Reading "${name}" failed: "weight_map" is empty`, {
      file: name,
    });
  }
  return { fileOf, files: [...new Set(fileOf.values())] };
}

/** Subfolders are allowed; roots, drives, backslashes, `..` and NUL are not, on any platform. */
function staysInside(file: string): boolean {
  if (/[\\:\0]/.test(file)) return false;
  return file.split('/').every((part) => part !== '' && part !== '.' && part !== '..');
}
