import { Command } from '@commander-js/extra-typings';
import { TamperedError } from '../base/errors.js';
import { buildArchive } from '../lab/archive.js';
import { readArchiveFile, writeArchiveFile } from '../lab/archive-file.js';
import { auditArchive } from '../lab/audit.js';
import { readPrivateKey } from './key-files.js';
import { openTerminal } from './terminal.js';

const collect = (text: string, earlier: readonly string[] = []): string[] => [...earlier, text];

/** `waybill lab archive`: a run as one zip that a stranger can audit, and its digest beside it. */
export function labArchiveCommand() {
  return new Command('archive')
    .description('pack a run into one zip that anybody can audit, with its receipt')
    .argument('<run>', 'folder of the run')
    .requiredOption('-o, --output <file.zip>', 'archive to write; <file.zip>.sha256 is written beside it')
    .option('--aa <run>', 'an A/A run of the same protocol: the noise floor')
    .option(
      '--attempt <run|zip>',
      'an earlier attempt to keep, oldest first (repeatable)',
      collect,
      [] as string[],
    )
    .option('--attach <file>', 'JUnit results, a review record (repeatable)', collect, [] as string[])
    .option('--sign <key.pem>', 'sign the receipt with this Ed25519 private key')
    .option('--json', 'print one JSON object')
    .action(async (run, options) => {
      const terminal = openTerminal(options);
      const { members, archive } = await buildArchive({
        run,
        noise: options.aa ?? null,
        attempts: options.attempt,
        attachments: options.attach,
        privateKey: options.sign === undefined ? null : await readPrivateKey(options.sign),
      });
      const written = await writeArchiveFile(options.output, members);
      const { audit } = await auditArchive(await readArchiveFile(written.path), { name: written.path });
      if (audit.broken !== null) throw new TamperedError(audit.broken.code, audit.broken.problem);
      const { verdict } = archive.run.evaluation;
      terminal.print(
        `${written.path}: ${members.size} members, ${written.byteLength} bytes, verdict ${verdict}\n${written.digestPath}: SHA-256 ${written.sha256}\n`,
      );
      if (terminal.json) terminal.printJson({ ...written, byteLength: String(written.byteLength), verdict });
    });
}
