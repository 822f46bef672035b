import { writeSync } from 'node:fs';

/**
 * Where a command writes: results to standard output, everything else to standard error. No colours, so NO_COLOR
 * (https://no-color.org) holds as it is.
 */
export interface Terminal {
  readonly json: boolean;
  readonly quiet: boolean;
  /** Result text; kept back by `--json`, whose one object is the whole output. */
  print(text: string): void;
  /** The result object of `--json`. */
  printJson(value: unknown): void;
  /** Progress, warnings, explanations; silenced by `--quiet`. */
  note(text: string): void;
}

/** Opens the process's own streams. */
export function openTerminal(options: { json?: boolean; quiet?: boolean }): Terminal {
  const json = options.json === true;
  const quiet = options.quiet === true;
  return {
    json,
    quiet,
    print: (text) => {
      if (!json) process.stdout.write(text);
    },
    printJson: (value) => {
      process.stdout.write(`${JSON.stringify(value, jsonValue, 2)}\n`);
    },
    note: (text) => {
      if (!quiet) process.stderr.write(`${text}\n`);
    },
  };
}

/** Integers that can pass 2^53 are decimal strings in every file and every `--json`. */
function jsonValue(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}

/** An error's last words, written at once so that an exit that follows cannot lose them. */
export function writeLastWords(text: string): void {
  try {
    writeSync(process.stderr.fd, text);
  } catch {
    // standard error is gone: there is nobody to tell
  }
}
