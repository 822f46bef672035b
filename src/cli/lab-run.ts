import { Command } from '@commander-js/extra-typings';
import type { Evaluation } from '../lab/evaluation.js';
import { type RunHooks, resumeRun, runProtocol } from '../lab/runner.js';
import { raiseExitCode } from './exit-code.js';
import { flags } from './flags.js';
import { printEvaluation } from './lab-evaluation.js';
import { LabProgress } from './lab-progress.js';
import { Progress } from './progress.js';
import { interruption } from './signals.js';
import { openTerminal, type Terminal } from './terminal.js';

/** `waybill lab run`. */
export function labRunCommand() {
  return new Command('run')
    .description('run a frozen protocol and judge it; 0 passes, see docs/formats/exit-codes.md')
    .argument('<protocol>', 'frozen protocol (.yaml)')
    .requiredOption('-o, --out <dir>', 'new folder for the records')
    .option('-m, --model <folder|id>', 'where the model lies on this machine; its digest is checked')
    .option('--aa', 'run every arm as the first one: gives the noise floor, and no verdict')
    .addOption(flags.json())
    .addOption(flags.quiet())
    .action(async (protocolPath, given) => {
      const terminal = openTerminal(given);
      const variant = given.aa === true ? 'aa' : 'measured';
      await watched(terminal, given.out, (hooks) =>
        runProtocol({ protocolPath, runPath: given.out, model: given.model, variant }, hooks),
      );
    });
}

/** `waybill lab resume`. */
export function labResumeCommand() {
  return new Command('resume')
    .description('go on with a run that was killed or interrupted; its broken block is repeated')
    .argument('<run>', 'folder of the run')
    .option('-m, --model <folder|id>', 'where the model lies now; its digest is checked')
    .addOption(flags.json())
    .addOption(flags.quiet())
    .action(async (runPath, given) => {
      const terminal = openTerminal(given);
      await watched(terminal, runPath, (hooks) => resumeRun({ runPath, model: given.model }, hooks));
    });
}

async function watched(
  terminal: Terminal,
  path: string,
  run: (hooks: RunHooks) => Promise<Evaluation>,
): Promise<void> {
  const setup = new Progress(terminal);
  const trials = new LabProgress(terminal);
  const { signal, dispose } = interruption();
  try {
    const evaluation = await run({
      signal,
      onProgress: (label, done, total) => {
        if (!trials.started) setup.bytes(label, done, total);
      },
      onNote: (text) => terminal.note(`note: ${text}`),
      onTrial: (slot, done, total) => {
        setup.stop();
        trials.trial(slot, done, total);
      },
    });
    trials.stop();
    printEvaluation(terminal, path, evaluation);
    raiseExitCode(evaluation.exitCode);
  } finally {
    setup.stop();
    trials.stop();
    dispose();
  }
}
