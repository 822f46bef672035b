import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { writeFileAtomic } from '../base/atomic-file.js';
import { exitCodes, InputError, TamperedError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { runMembers } from '../lab/archive.js';
import { readArchiveFile } from '../lab/archive-file.js';
import { readPart } from '../lab/archive-part.js';
import { type Audit, auditArchive } from '../lab/audit.js';
import { checkPart } from '../lab/audit-part.js';
import { type JudgedArchive, judgePart } from '../lab/lab-receipt.js';
import { type ReportFormat, reportFormats } from '../lab/report/document.js';
import { raiseExitCode } from './exit-code.js';
import { readPublicKeys } from './key-files.js';
import { openTerminal } from './terminal.js';

/** `waybill lab report`: one file that shows a run, made from its raw records; an archive is audited first. */
export function labReportCommand() {
  return new Command('report')
    .description('write a report of a run or an archive as one HTML or Markdown file')
    .argument('<run|archive.zip>', 'folder of a run, or an archive')
    .requiredOption('-o, --output <file>', 'file to write: .html or .md')
    .option('--key <file...>', 'public key (PEM) that must have signed the archive')
    .option('--json', 'print one JSON object')
    .action(async (source, options) => {
      const terminal = openTerminal(options);
      const format = formatOf(options.output);
      const { archive, audit } = await readSource(source, options.key ?? []);
      // Drawing takes a second to load, which no other command of the lab should wait for
      const { renderReport, reportDocument } = await import('../lab/report/report.js');
      await writeFileAtomic(options.output, renderReport(reportDocument(archive, audit), format));
      const { verdict, exitCode } = archive.run.evaluation;
      terminal.print(`${options.output}: verdict ${verdict}\n`);
      if (terminal.json) terminal.printJson({ path: options.output, verdict });
      raiseExitCode(exitCode === exitCodes.tampered ? exitCode : exitCodes.ok);
    });
}

async function readSource(
  source: string,
  keyPaths: readonly string[],
): Promise<{ archive: JudgedArchive; audit: Audit | null }> {
  const found = await stat(source).catch((cause: Error) => {
    throw new InputError(
      'unreadable-file',
      `Cannot read "${source}": ${failureReason(cause)}`,
      { source },
      { cause },
    );
  });
  if (found.isDirectory()) {
    if (keyPaths.length > 0) {
      throw new UsageError(
        'option-without-effect',
        'Cannot use --key with the folder of a run: nothing in it is signed',
      );
    }
    const part = readPart(await runMembers(source), '');
    checkPart(part);
    return { archive: { run: judgePart(part), noise: null, attempts: [] }, audit: null };
  }
  const keys = await readPublicKeys(keyPaths);
  const { archive, audit } = await auditArchive(await readArchiveFile(source), {
    name: basename(source),
    keys,
  });
  if (audit.broken !== null) throw new TamperedError(audit.broken.code, audit.broken.problem);
  return { archive: archive!, audit };
}

function formatOf(path: string): ReportFormat {
  const format = reportFormats.find((known) => path.endsWith(`.${known}`));
  if (format !== undefined) return format;
  throw new UsageError(
    'bad-option',
    `Cannot write the report "${path}": want a name that ends in .html or .md`,
    {
      path,
    },
  );
}
