import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, CommanderError } from '@commander-js/extra-typings';
import { exitCodes } from '../base/errors.js';
import { packageRoot } from '../receipt/program.js';
import { cacheCommand } from './cache-command.js';
import { demoCommand } from './demo-command.js';
import { diffCommand } from './diff-command.js';
import { doctorCommand } from './doctor-command.js';
import { reportFailure } from './failure.js';
import { generateCommand } from './generate-command.js';
import { inspectCommand } from './inspect-command.js';
import { keygenCommand } from './keygen-command.js';
import { planCommand } from './plan-command.js';
import { prepareCommand } from './prepare-command.js';
import { scoreCommand } from './score-command.js';
import { verifyCommand } from './verify-command.js';

/** Runs the command line and sets the process's exit code (docs/formats/exit-codes.md). */
export async function main(argv: readonly string[]): Promise<void> {
  const program = new Command('waybill')
    .description('runs ReLU-sparse language models that do not fit in memory, exactly, with a receipt')
    .version(packageVersion(), '-V, --version')
    .configureHelp({ sortSubcommands: false })
    .exitOverride();
  const commands = [
    generateCommand(),
    planCommand(),
    inspectCommand(),
    prepareCommand(),
    scoreCommand(),
    diffCommand(),
    verifyCommand(),
    keygenCommand(),
    cacheCommand(),
    doctorCommand(),
    demoCommand(),
  ];
  for (const command of commands) {
    command.exitOverride();
    for (const sub of command.commands) sub.exitOverride();
    program.addCommand(command);
  }
  try {
    await program.parseAsync(argv);
  } catch (error) {
    // commander has printed help, version or the complaint itself
    if (error instanceof CommanderError)
      process.exitCode = error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    else process.exitCode = reportFailure(error, argv.includes('--json'));
  }
}

function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
    version: string;
  };
  return version;
}
