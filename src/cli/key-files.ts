import type { KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { InputError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { parsePrivateKey, parsePublicKey } from '../receipt/dsse.js';

/** @throws InputError `unreadable-file`, `bad-key` */
export async function readPrivateKey(path: string): Promise<KeyObject> {
  return parsePrivateKey(await readKey(path, 'private'), path);
}

/** @throws InputError `unreadable-file`, `bad-key` */
export async function readPublicKeys(paths: readonly string[]): Promise<{ name: string; key: KeyObject }[]> {
  return Promise.all(
    paths.map(async (path) => ({
      name: basename(path),
      key: parsePublicKey(await readKey(path, 'public'), path),
    })),
  );
}

async function readKey(path: string, kind: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new InputError(
      'unreadable-file',
      `Cannot read the ${kind} key "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  }
}
