import { type ExitCode, exitCodes, WaybillError } from '../base/errors.js';
import { openTerminal, writeLastWords } from './terminal.js';

/** Tells a failure to the person (or, with `--json`, to the machine) and gives the exit code. */
export function reportFailure(error: unknown, json: boolean): ExitCode {
  if (error instanceof WaybillError) {
    if (json) {
      openTerminal({ json }).printJson({
        error: { code: error.code, message: error.message, data: error.data },
      });
    } else {
      writeLastWords(`waybill: ${error.message} [${error.code}]\n`);
    }
    return error.exitCode;
  }
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  if (json) {
    const message = error instanceof Error ? error.message : String(error);
    openTerminal({ json }).printJson({ error: { code: 'unexpected', message, data: {} } });
  }
  writeLastWords(`waybill: unexpected failure, please report it: ${text}\n`);
  return exitCodes.execution;
}
