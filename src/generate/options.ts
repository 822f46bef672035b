import { UsageError } from '../base/errors.js';

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
  const options = { ...defaultGenerateOptions, ...given };
  const check = (name: keyof GenerateOptions, holds: boolean, wanted: string): void => {
    if (holds) return;
    throw new UsageError('bad-option', `Cannot use ${name} ${String(options[name])}: want ${wanted}`, {
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
    Number.isFinite(options.temperature) && options.temperature >= 0,
    'a number of at least 0',
  );
  check('topK', Number.isSafeInteger(options.topK) && options.topK >= 0, 'an integer of at least 0');
  check('topP', options.topP > 0 && options.topP <= 1, 'a number above 0 and at most 1');
  check('minP', options.minP >= 0 && options.minP <= 1, 'a number from 0 to 1');
  check('seed', Number.isSafeInteger(options.seed) && options.seed >= 0, 'an integer from 0 to 2^53 - 1');
  check(
    'stop',
    options.stop.every((text) => text.length > 0),
    'strings that are not empty',
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
