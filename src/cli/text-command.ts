import { UsageError } from '../base/errors.js';
import { readTextFile } from '../checkpoint/prompt-files.js';
import { sessionCommand } from './session-command.js';

/** Logits rows of a pass over a text: enough for a real matrix product, few enough to stay small. */
export const textRows = 32;

/** A command that runs a text through a model, with the flags that all of them have. */
export function textCommand(name: string) {
  return sessionCommand(name).requiredOption('--text <file>', 'text to run through the model, UTF-8');
}

/** @throws UsageError `empty-text`; InputError as `readTextFile` */
export async function readText(path: string, action: string): Promise<string> {
  const text = await readTextFile(path);
  if (text.length > 0) return text;
  throw new UsageError('empty-text', `Cannot ${action} "${path}": it is empty, want text`);
}
