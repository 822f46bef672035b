import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { storageError, systemCode } from '../base/atomic-file.js';
import { verifyFolder } from './low-bit-folder.js';
import { lowBitDirectory } from './low-bit-model.js';
import type { PreparedModel } from './prepared-model.js';
import { quantisedDirectory } from './quantised-copy.js';

/** A folder of weights that were derived from a prepared form, all of its bytes as its manifest says. */
export interface VerifiedFolder {
  /** Inside the prepared directory: `quantised/q8`, `low-bit/int8`. */
  readonly name: string;
  readonly byteLength: number;
  readonly tensors: number;
}

/**
 * Reads every byte of what policies have derived from a prepared form and keep beside it: quantised matrices, low-bit copies,
 * neuron-major rows. Folders of another version, or made from another form, are passed over: nothing opens them as they are.
 * Throws `TamperedError` `manifest-digest`, `weights-size`, `tensor-digest`; `InterruptedError`.
 */
export async function verifyDerived(
  prepared: PreparedModel,
  watch: Parameters<typeof verifyFolder>[2] = {},
): Promise<VerifiedFolder[]> {
  const verified: VerifiedFolder[] = [];
  for (const kind of [lowBitDirectory, quantisedDirectory]) {
    for (const one of await foldersIn(join(prepared.directory, kind))) {
      const manifest = await verifyFolder(
        join(prepared.directory, kind, one),
        prepared.manifestDigest,
        watch,
      );
      if (manifest === null) continue;
      const { byteLength, entries } = manifest;
      verified.push({ name: `${kind}/${one}`, byteLength: Number(byteLength), tensors: entries.length });
    }
  }
  return verified;
}

async function foldersIn(directory: string): Promise<string[]> {
  try {
    const entries = await readdir(directory, { withFileTypes: true });
    return entries
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
      .sort();
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return [];
    throw storageError(error, 'read', directory, 0);
  }
}
