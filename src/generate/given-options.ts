import { UsageError } from '../base/errors.js';

/**
 * What a caller gave, without the fields that are undefined, which mean the default.
 * @throws UsageError `bad-option` for a name that is none of `known`: misspelt, it would be ignored
 */
export function givenOptions<Options extends object>(given: Options, known: readonly string[]): Options {
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue;
    throw new UsageError('bad-option', `Cannot use the option "${name}": want one of ${known.join(', ')}`, {
      option: name,
    });
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Options;
}

/** @throws UsageError `bad-option` for what is no record: JavaScript lets a caller hand in a bare path, or nothing */
export function checkRecord(given: unknown, example: string): void {
  if (typeof given === 'object' && given !== null && !Array.isArray(given)) return;
  throw new UsageError(
    'bad-option',
    `Cannot use the options ${shownValue(given)}: want a record such as ${example}`,
  );
}

/** A refused value as it was given: strings and lists in quotes, numbers that JSON lacks as they print. */
export function shownValue(value: unknown): string {
  return typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? String(value));
}
