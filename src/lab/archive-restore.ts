import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { makeFolders, writeDirectoryAtomic } from '../base/atomic-file.js';
import { UsageError } from '../base/errors.js';
import type { Members } from './archive-container.js';
import { mainPrefix } from './archive-layout.js';
import { runFilesOf } from './archive-part.js';
import { runFiles } from './record-format.js';

/**
 * Writes the run of an archive back as the folder that it was made from, whole or not at all. The salt of its digests is
 * in no archive, so the run can be judged, reported and archived again, but its prompts' digests can be confirmed only by
 * whoever kept the salt.
 * @throws UsageError `folder-exists`; SetupError as `storageError`
 */
export async function restoreRun(members: Members, folder: string): Promise<number> {
  const files = runFilesOf(members, mainPrefix);
  const neededBytes = [...files.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
  const target = resolve(folder);
  const temporary = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString('hex')}.tmp`);
  const placed = await writeDirectoryAtomic(folder, {
    temporary,
    neededBytes,
    fill: async (place) => {
      await makeFolders(join(place, 'records'), 'make', neededBytes);
      if (files.has(runFiles.superseded(1))) await makeFolders(join(place, 'superseded'), 'make', 0);
      // Names are the run format's own, never the archive's
      for (const [name, bytes] of files)
        await writeFile(join(place, name), bytes, { flag: 'wx', flush: true });
    },
  });
  if (placed) return files.size;
  throw new UsageError(
    'folder-exists',
    `Cannot restore the run to "${folder}": the folder is not empty, want a new one`,
    {
      folder,
    },
  );
}
