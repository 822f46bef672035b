import { Command } from '@commander-js/extra-typings';
import { evaluateRun } from '../lab/evaluation.js';
import { readRunFolder } from '../lab/run-folder.js';
import { raiseExitCode } from './exit-code.js';
import { flags } from './flags.js';
import { printEvaluation } from './lab-evaluation.js';
import { openTerminal } from './terminal.js';

/** `waybill lab show`: judges a run's folder again, from its records. */
export function labShowCommand() {
  return new Command('show')
    .description('check the records of a run and judge them again')
    .argument('<run>', 'folder of the run')
    .addOption(flags.json())
    .action(async (path, given) => {
      const terminal = openTerminal(given);
      const { protocolFile, manifest, records } = await readRunFolder(path);
      const { protocol, digest } = protocolFile;
      const evaluation = evaluateRun(protocol, manifest, records);
      terminal.print(`${protocol.name} (${digest})\n${protocol.question.trim()}\n`);
      terminal.print(
        `begun ${manifest.startedAt} by ${manifest.program.name}; ${records.length} records\n\n`,
      );
      printEvaluation(terminal, path, evaluation);
      for (const claim of protocol.nonClaims) terminal.print(`not claimed: ${claim}\n`);
      raiseExitCode(evaluation.exitCode);
    });
}
