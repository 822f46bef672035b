import { type ExitCode, exitCodes } from '../base/errors.js';
import type { Verdict } from './gates.js';

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

/** The exit code of a verdict alone. */
export const exitCodeOfVerdict: Readonly<Record<Verdict, ExitCode>> = {
  pass: exitCodes.ok,
  fail: exitCodes.gateFailed,
  inconclusive: exitCodes.inconclusive,
  unmeasured: exitCodes.execution,
};

/** The weightiest of codes; 0 for none. */
export function weightiestExitCode(codes: readonly ExitCode[]): ExitCode {
  return precedence.find((code) => codes.includes(code)) ?? exitCodes.ok;
}

/** The exit code of a run: of its gates, and of what else happened to it. */
export function exitCodeOf(verdicts: readonly Verdict[], others: readonly ExitCode[] = []): ExitCode {
  // A run without a verdict has measured nothing
  const own =
    verdicts.length === 0 ? [exitCodes.execution] : verdicts.map((verdict) => exitCodeOfVerdict[verdict]);
  return weightiestExitCode([...own, ...others]);
}
