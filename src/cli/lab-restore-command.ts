import { basename } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { TamperedError } from '../base/errors.js';
import { readArchiveFile } from '../lab/archive-file.js';
import { restoreRun } from '../lab/archive-restore.js';
import { auditArchive } from '../lab/audit.js';
import { openTerminal } from './terminal.js';

/** `waybill lab restore`: the folder of the run that an archive holds, once the archive was audited. */
export function labRestoreCommand() {
  return new Command('restore')
    .description('write the run of an archive back as a folder; the archive is audited first')
    .argument('<archive.zip>', 'archive of a run')
    .argument('<folder>', 'new folder')
    .option('--json', 'print one JSON object')
    .action(async (path, folder, options) => {
      const terminal = openTerminal(options);
      const { audit, members } = await auditArchive(await readArchiveFile(path), { name: basename(path) });
      if (audit.broken !== null) throw new TamperedError(audit.broken.code, audit.broken.problem);
      const files = await restoreRun(members!, folder);
      terminal.print(`${folder}: ${files} files\n`);
      if (terminal.json) terminal.printJson({ folder, files });
    });
}
