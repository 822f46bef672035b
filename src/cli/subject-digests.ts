import { statSync } from 'node:fs';
import { join, normalize, sep } from 'node:path';
import { fileDigest } from '../base/digest.js';
import type { Subject } from '../receipt/statement.js';

/** Where subjects of a receipt may lie on this machine. */
export interface SubjectPlaces {
  readonly model?: string | undefined;
  readonly prepared?: string | undefined;
}

/**
 * SHA-256, by subject name, of those subjects whose files are at hand. The program is not among them: another build
 * of it, on another machine, has another digest and may well have written the receipt.
 */
export async function subjectDigests(
  subjects: readonly Subject[],
  places: SubjectPlaces,
): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  for (const { name } of subjects) {
    const [kind, ...rest] = name.split('/');
    const folder = kind === 'checkpoint' ? places.model : kind === 'prepared' ? places.prepared : undefined;
    if (folder === undefined) continue;
    const path = fileInside(folder, rest.join('/'));
    if (path !== null && isFile(path)) digests.set(name, await fileDigest(path));
    else digests.set(name, 'absent');
  }
  return digests;
}

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false; // absent, or no name that a file can have
  }
}

/** A receipt is untrusted: a name that climbs out of the folder is no file of it. */
function fileInside(folder: string, name: string): string | null {
  const normal = normalize(name);
  const climbs = normal === '..' || normal.startsWith(`..${sep}`) || normal.startsWith(sep);
  return climbs ? null : join(folder, normal);
}
