import { UsageError } from '../base/errors.js';
import { givenOptions, shownValue } from './given-options.js';

/** How tokens are chosen and when generation ends. All fields have a meaning in every run; defaults are greedy. */
export interface GenerateOptions {
  /** Largest number of new tokens of each request. Default 128. */
  readonly maxNewTokens: number;
  /** 0 chooses the largest logit (ties: the lowest id). */
  readonly temperature: number;
  /** Keep the k likeliest candidates; 0 keeps all. */
  readonly topK: number;
  /** Keep the smallest set of candidates whose probabilities reach p; 1 keeps all. */
  readonly topP: number;
  /** Keep candidates of at least p times the largest probability; 0 keeps all. */
  readonly minP: number;
  /** Key of the Philox generator, 0 to 2^53 - 1. */
  readonly seed: number;
  /** Strings that end a request; they are not part of its text. */
  readonly stop: readonly string[];
  /** Go on past end-of-sequence tokens. */
  readonly ignoreEos: boolean;
}

export const defaultGenerateOptions: GenerateOptions = Object.freeze({
  maxNewTokens: 128,
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  seed: 0,
  stop: Object.freeze([]) as readonly string[],
  ignoreEos: false,
});

/**
 * Fills in defaults and checks ranges.
 * @throws UsageError `bad-option` that names the option, its value and the range
 */
export function generateOptions(given: Partial<GenerateOptions> = {}): GenerateOptions {
  const known = Object.keys(defaultGenerateOptions);
  const options = { ...defaultGenerateOptions, ...givenOptions(given, known) };
  const check = (name: keyof GenerateOptions, holds: boolean, wanted: string): void => {
    if (holds) return;
    throw new UsageError('bad-option', `Cannot use "${name}" ${shownValue(options[name])}: want ${wanted}`, {
      option: name,
      value: String(options[name]),
    });
  };
  check(
    'maxNewTokens',
    Number.isSafeInteger(options.maxNewTokens) && options.maxNewTokens >= 1,
    'an integer of at least 1',
  );
  check(
    'temperature',
    // The sampler divides by its binary32 value, which must not become 0 or infinite
    options.temperature === 0 ||
      (options.temperature > 0 &&
        Math.fround(options.temperature) > 0 &&
        Math.fround(options.temperature) < Infinity),
    'zero, or a number above 0 that binary32 can hold',
  );
  check('topK', Number.isSafeInteger(options.topK) && options.topK >= 0, 'an integer of at least 0');
  check(
    'topP',
    typeof options.topP === 'number' && options.topP > 0 && options.topP <= 1,
    'a number above 0 and at most 1',
  );
  check(
    'minP',
    typeof options.minP === 'number' && options.minP >= 0 && options.minP <= 1,
    'a number from 0 to 1',
  );
  check('seed', Number.isSafeInteger(options.seed) && options.seed >= 0, 'an integer from 0 to 2^53 - 1');
  check(
    'stop',
    Array.isArray(options.stop) && options.stop.every((text) => typeof text === 'string' && text.length > 0),
    'a list of strings that are not empty',
  );
  const sampling = options.topK !== 0 || options.topP !== 1 || options.minP !== 0;
  if (options.temperature === 0 && sampling) {
    throw new UsageError(
      'option-without-effect',
      'Cannot use top-k, top-p or min-p at temperature 0: greedy choice ignores them; give a temperature above 0',
    );
  }
  return Object.freeze({ ...options, stop: Object.freeze([...options.stop]) });
}
