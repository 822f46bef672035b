import { type ExitCode, exitCodes } from '../base/errors.js';

/** Where several exit codes apply, the first of these wins (docs/formats/exit-codes.md). */
const precedence: readonly ExitCode[] = [
  exitCodes.tampered,
  exitCodes.usage,
  exitCodes.setup,
  exitCodes.interrupted,
  exitCodes.execution,
  exitCodes.gateFailed,
  exitCodes.inconclusive,
  exitCodes.ok,
];

/** Makes `code` the process's exit code unless a weightier one was set before. */
export function raiseExitCode(code: ExitCode): void {
  const earlier = precedence.findIndex((known) => known === (process.exitCode ?? exitCodes.ok));
  const now = precedence.indexOf(code);
  if (earlier < 0 || now < earlier) process.exitCode = code;
}
