import { UsageError } from '../base/errors.js';
import { resolveModel } from '../checkpoint/hub.js';
import {
  parsePromptIds,
  readPromptFile,
  readPromptStdin,
  readPromptsJsonl,
} from '../checkpoint/prompt-files.js';
import { openTokenizer } from '../checkpoint/tokenizer.js';

/** The flags that say what to continue. */
export interface PromptFlags {
  readonly model: string;
  readonly revision?: string | undefined;
  readonly prompt?: string | undefined;
  readonly promptFile?: string | undefined;
  readonly prompts?: string | undefined;
  readonly promptIds?: string | undefined;
}

/** The prompts of a run as token ids, and the folder of the model that encoded them. */
export interface PromptInput {
  readonly directory: string;
  readonly prompts: readonly (readonly number[])[];
}

/**
 * Reads the prompts that flags name; exactly one source counts, standard input where no flag names one.
 * @throws UsageError `several-prompts`, `empty-prompt`; InputError for unreadable files and missing tokenizers
 */
export async function readPrompts(
  flags: PromptFlags,
  onProgress: (label: string, done: number, total: number) => void,
): Promise<PromptInput> {
  const given = (['prompt', 'promptFile', 'prompts', 'promptIds'] as const).filter(
    (name) => flags[name] !== undefined,
  );
  if (given.length > 1) {
    const names = given.map((name) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`);
    throw new UsageError(
      'several-prompts',
      `Cannot use ${names.join(' and ')} together: give one source of prompts`,
    );
  }
  const sources = await promptSources(flags);
  const { directory } = await resolveModel(flags.model, {
    revision: flags.revision,
    onProgress: ({ file, doneBytes, totalBytes }) => onProgress(`downloading ${file}`, doneBytes, totalBytes),
  });
  const needsTokenizer = sources.some((source) => typeof source === 'string');
  const tokenizer = needsTokenizer ? await openTokenizer(directory) : null;
  const prompts = sources.map((source, index) => {
    if (typeof source !== 'string') return source;
    if (source.length > 0) return tokenizer!.encode(source);
    throw new UsageError('empty-prompt', `Cannot generate from prompt ${index}: it is empty, want text`, {
      index,
    });
  });
  return { directory, prompts };
}

async function promptSources(flags: PromptFlags): Promise<(string | readonly number[])[]> {
  if (flags.promptIds !== undefined) return [parsePromptIds(flags.promptIds)];
  if (flags.prompt !== undefined) return [flags.prompt];
  if (flags.prompts !== undefined) return readPromptsJsonl(flags.prompts);
  if (flags.promptFile !== undefined && flags.promptFile !== '-')
    return [await readPromptFile(flags.promptFile)];
  if (flags.promptFile === undefined && process.stdin.isTTY === true) {
    throw new UsageError(
      'no-prompt',
      'Cannot generate: no prompt was given; use --prompt, --prompt-file, --prompts, --prompt-ids or standard input',
    );
  }
  return [await readPromptStdin()];
}
