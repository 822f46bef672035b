import { UsageError } from '../base/errors.js';
import type { Generation } from './generation.js';
import type { GenerateOptions } from './options.js';
import type { Session } from './session.js';

/** Options of a call of `generate`; all of them have defaults. */
export interface GenerateCall extends Partial<GenerateOptions> {
  readonly signal?: AbortSignal | undefined;
}

/** A prompt as text (encoded with special tokens) or as token ids (used as they are). */
export type PromptOrIds = string | readonly number[];

/**
 * Continues one prompt, or several as a batch of a session opened with as many `slots`: an async iterator of tokens,
 * whose `outcome` holds the whole afterwards. An abort ends the iteration with `InterruptedError`.
 *
 * @throws UsageError for prompts and options that cannot be used
 */
export function generate(
  session: Session,
  prompts: PromptOrIds | readonly PromptOrIds[],
  { signal, ...options }: GenerateCall = {},
): Generation {
  return session.generate(promptList(prompts), options, signal === undefined ? {} : { signal });
}

function promptList(prompts: PromptOrIds | readonly PromptOrIds[]): readonly PromptOrIds[] {
  if (typeof prompts === 'string') return [prompts];
  if (!Array.isArray(prompts)) {
    throw new UsageError(
      'bad-prompt',
      `Cannot generate from ${typeof prompts}: want text, token ids, or a list of them`,
    );
  }
  return prompts.some((prompt) => typeof prompt === 'number') ? [prompts as readonly number[]] : prompts;
}
