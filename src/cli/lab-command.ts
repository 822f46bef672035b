import { Command } from '@commander-js/extra-typings';
import { labArchiveCommand } from './lab-archive-command.js';
import { labAuditCommand } from './lab-audit-command.js';
import { labDiffCommand } from './lab-diff-command.js';
import { labFreezeCommand } from './lab-freeze.js';
import { labInitCommand } from './lab-init.js';
import { labReportCommand } from './lab-report-command.js';
import { labRestoreCommand } from './lab-restore-command.js';
import { labResumeCommand, labRunCommand } from './lab-run.js';
import { labShowCommand } from './lab-show.js';

/** `waybill lab`: from a question to a verdict that others can check. */
export function labCommand() {
  return new Command('lab')
    .addCommand(labInitCommand())
    .addCommand(labFreezeCommand())
    .addCommand(labRunCommand())
    .addCommand(labResumeCommand())
    .addCommand(labShowCommand())
    .addCommand(labArchiveCommand())
    .addCommand(labAuditCommand())
    .addCommand(labReportCommand())
    .addCommand(labDiffCommand())
    .addCommand(labRestoreCommand());
}
