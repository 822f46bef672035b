import { Command } from '@commander-js/extra-typings';
import { UsageError } from '../base/errors.js';
import { readTextFile } from '../checkpoint/prompt-files.js';
import { flags } from './flags.js';

/** Logits rows of a pass over a text: enough for a real matrix product, few enough to stay small. */
export const textRows = 32;

/** A command that runs a text through a model, with the flags that all of them have. */
export function textCommand(name: string) {
  return new Command(name)
    .addOption(flags.model())
    .addOption(flags.revision())
    .addOption(flags.prepared())
    .requiredOption('--text <file>', 'text to run through the model, UTF-8')
    .addOption(flags.budget())
    .addOption(flags.policy())
    .addOption(flags.retain())
    .addOption(flags.profile())
    .addOption(flags.forecast())
    .addOption(flags.lowBit())
    .addOption(flags.guesser())
    .addOption(flags.streamLayout())
    .addOption(flags.backend())
    .addOption(flags.kernels())
    .addOption(flags.numerics())
    .addOption(flags.threads())
    .addOption(flags.device())
    .addOption(flags.hostBudget())
    .addOption(flags.kv())
    .addOption(flags.ctxSize())
    .addOption(flags.prefillChunk())
    .addOption(flags.json())
    .addOption(flags.quiet());
}

/** @throws UsageError `empty-text`; InputError as `readTextFile` */
export async function readText(path: string, action: string): Promise<string> {
  const text = await readTextFile(path);
  if (text.length > 0) return text;
  throw new UsageError('empty-text', `Cannot ${action} "${path}": it is empty, want text`);
}
