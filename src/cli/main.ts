import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, CommanderError, type CommandUnknownOpts } from '@commander-js/extra-typings';
import { exitCodes, SetupError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { packageRoot } from '../receipt/program.js';
import { type CommandEntry, commandEntries } from './commands.js';
import { raiseExitCode } from './exit-code.js';
import { reportFailure } from './failure.js';

/** Runs the command line and sets the process's exit code (docs/formats/exit-codes.md). */
export async function main(argv: readonly string[]): Promise<void> {
  surviveLostOutputs();
  const json = argv.includes('--json');
  try {
    const program = await createProgram(argv, json);
    await program.parseAsync(argv);
  } catch (error) {
    if (!(error instanceof CommanderError)) raiseExitCode(reportFailure(error, json));
    else if (error.exitCode !== 0)
      raiseExitCode(json ? reportFailure(complaint(error), json) : exitCodes.usage);
  }
}

async function createProgram(argv: readonly string[], json: boolean): Promise<CommandUnknownOpts> {
  const program = new Command('waybill')
    .description('runs ReLU-sparse language models that do not fit in memory, exactly, with a receipt')
    .version(packageVersion(), '-V, --version')
    .configureHelp({ sortSubcommands: false });
  // `waybill help NAME` asks for NAME, too
  const wanted = argv.slice(2).find((word) => word !== 'help' && !word.startsWith('-'));
  for (const entry of commandEntries) program.addCommand(await createCommand(entry, entry.name === wanted));
  for (const command of withSubcommands(program)) {
    command.exitOverride().configureOutput({
      outputError: (text, write) => {
        if (!json) write(text.replace(/^error: /, 'waybill: '));
      },
    });
  }
  return program;
}

async function createCommand({ name, description, load }: CommandEntry, whole: boolean) {
  if (whole) return (await load()).description(description);
  return new Command(name).usage('[options]').description(description) as CommandUnknownOpts;
}

function withSubcommands(command: CommandUnknownOpts): CommandUnknownOpts[] {
  return [command, ...command.commands.flatMap(withSubcommands)];
}

/** What commander found wrong, as an error of ours. */
function complaint({ code, message }: CommanderError): UsageError {
  const name = code.replace(/^commander\./, '').replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  return new UsageError(name, message.replace(/^error: /, '').replace(/\.$/, ''));
}

/**
 * A reader that closed standard output (`| head`) ends a command early, without a stack trace: exit code 130. What
 * cannot be written otherwise (a file on a full disk) is a failure that is told once. Nobody reads what goes to a lost
 * standard error, which changes no result.
 */
function surviveLostOutputs(): void {
  let told = false;
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') raiseExitCode(exitCodes.interrupted);
    // Every later write fails again; and an object on standard output is what failed, so the words are plain
    else if (!told) raiseExitCode(reportFailure(lostOutput(error), false));
    told = true;
  });
  process.stderr.on('error', () => {});
}

function lostOutput(cause: NodeJS.ErrnoException): SetupError {
  const reason = `Cannot write to standard output: ${failureReason(cause)}`;
  return new SetupError('output-lost', reason, { system: cause.code ?? null }, { cause });
}

function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
    version: string;
  };
  return version;
}
