import { basename } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { exitCodes, UsageError } from '../base/errors.js';
import { readArchiveFile } from '../lab/archive-file.js';
import { type Audit, auditArchive, auditJson } from '../lab/audit.js';
import type { Reexecution } from '../lab/reexecute.js';
import { raiseExitCode } from './exit-code.js';
import { flags } from './flags.js';
import { readPublicKeys } from './key-files.js';
import { openTerminal } from './terminal.js';

const marks = { holds: 'ok', broken: 'BROKEN', unchecked: 'not checked' } as const;

/** `waybill lab audit`: checks an archive and recomputes its verdicts, offline, trusting nothing in it. */
export function labAuditCommand() {
  return new Command('audit')
    .description('check an archive: every digest, and every verdict recomputed from the raw records')
    .argument('<archive.zip>', 'archive of a run')
    .option('--key <file...>', 'public key (PEM) that must have signed the receipt')
    .option('--reexecute <n>', 'run n sampled trials again on the CPU and compare their logits', countOf)
    .option('--model <folder>', 'checkpoint for --reexecute')
    .option('--prompts <file>', 'prompt file of the protocol for --reexecute, its salt beside it')
    .addOption(flags.budget())
    .option('--reference <file...>', 'archive that a reference was taken from, to compare its records')
    .option('--json', 'print one JSON object')
    .action(async (path, options) => {
      const terminal = openTerminal(options);
      const { reexecute, model, prompts, budget } = options;
      const idle = Object.entries({ model, prompts, budget }).find(([, value]) => value !== undefined);
      if (reexecute === undefined && idle !== undefined) {
        throw new UsageError(
          'option-without-effect',
          `Cannot use --${idle[0]} without --reexecute: nothing is run`,
        );
      }
      const keys = await readPublicKeys(options.key ?? []);
      const { audit, archive } = await auditArchive(await readArchiveFile(path), {
        name: basename(path),
        keys,
        references: await Promise.all((options.reference ?? []).map(readArchiveFile)),
      });
      terminal.print(auditText(audit));
      raiseExitCode(audit.exitCode);
      let reexecution: Reexecution | null = null;
      if (reexecute !== undefined && audit.holds && archive !== null) {
        const { reexecuteTrials } = await import('../lab/reexecute.js');
        reexecution = await reexecuteTrials(archive.run.part, {
          count: reexecute,
          model: model ?? null,
          prompts: prompts ?? null,
          budgetBytes: budget,
          onTrial: (text) => terminal.note(text),
        });
        terminal.print(`re-execution: ${reexecution.verdict}: ${reexecution.reason}\n`);
        if (reexecution.verdict === 'different') raiseExitCode(exitCodes.tampered);
        if (reexecution.verdict === 'unmeasured') raiseExitCode(exitCodes.execution);
      }
      if (terminal.json) {
        process.stdout.write(auditJson(reexecution === null ? audit : { ...audit, reexecution }));
      }
    });
}

function countOf(text: string): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= 1) return value;
  throw new UsageError('bad-option', `Cannot use --reexecute "${text}": want a number of trials from 1 on`, {
    option: '--reexecute',
    value: text,
  });
}

function auditText({ archive, checks, gates, broken, verdict }: Audit): string {
  const lines = [
    `archive      ${archive.sha256}, ${archive.byteLength} bytes`,
    ...checks.map(({ check, text, verdict: found }) => `${marks[found].padEnd(12)} ${check}: ${text}`),
    ...gates.map(
      ({ name, recomputed, receipt, equal, reason }) =>
        `${(equal ? 'equal' : 'DIFFERENT').padEnd(12)} gate "${name}": ${recomputed ?? 'none'} recomputed, ${receipt ?? 'none'} in the receipt (${reason})`,
    ),
    broken === null
      ? `holds: records, digests and receipt agree; verdict ${verdict}. Times, bytes and peaks rest on whoever signed`
      : `BROKEN: ${broken.problem} [${broken.code}]`,
  ];
  return `${lines.join('\n')}\n`;
}
