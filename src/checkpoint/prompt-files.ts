import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { InputError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { parseJson } from '../base/json.js';

/** A prompt as text, which the tokenizer turns into ids, or as ids that are used as given. */
export type Prompt = string | readonly number[];

/** Ids are indices into a vocabulary; the largest are below 2^31. Whether a model has one is for the model to say. */
const idSchema = z.int().min(0).max(0x7fffffff);
const lineSchema = z.union([
  z.string(),
  z.strictObject({ prompt: z.string() }),
  z.strictObject({ prompt_ids: z.array(idSchema).min(1) }),
]);

/**
 * Reads a prompt file. One line end at the end of the file is left out, since editors and `echo` put one there and it
 * would change what a model continues; all else is prompt, further line ends too. Throws as `readTextFile`.
 */
export async function readPromptFile(path: string): Promise<string> {
  return withoutLineEnd(await readTextFile(path));
}

/** Reads the prompt from standard input to its end, as `readPromptFile` reads a file. */
export async function readPromptStdin(
  input: AsyncIterable<Uint8Array | string> = process.stdin,
): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of input)
    chunks.push(typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk);
  return withoutLineEnd(decodePrompt(Buffer.concat(chunks), 'standard input'));
}

/**
 * Reads a file of UTF-8 text as it is. A byte order mark at the start, which editors on Windows write without showing
 * it, is left out. Throws `InputError`: `prompt-file-unreadable`, `prompt-invalid-utf8` with the offset of the first
 * bad byte.
 */
export async function readTextFile(path: string): Promise<string> {
  return decodePrompt(await readBytes(path), path);
}

/** Strict UTF-8 to text without byte order mark; `name` is for the message. */
function decodePrompt(bytes: Uint8Array, name: string): string {
  const byteOffset = firstInvalidByte(bytes);
  if (byteOffset !== null) {
    throw new InputError(
      'prompt-invalid-utf8',
      `Reading the text "${name}" failed: the byte at offset ${byteOffset} is not UTF-8`,
      { file: name, byteOffset },
    );
  }
  // The decoder takes the byte order mark away.
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}

/**
 * Reads prompts from a file of JSON lines, each `{"prompt": "text"}`, `{"prompt_ids": [2, 100]}` or a JSON string.
 * Empty lines are skipped. Throws `InputError` with the line's number: `prompts-malformed`, `prompts-empty`, and those
 * of `readTextFile`.
 */
export async function readPromptsJsonl(path: string): Promise<Prompt[]> {
  const lines = (await readTextFile(path)).split('\n');
  const prompts = lines.flatMap((line, index) =>
    /^[ \t\r]*$/.test(line) ? [] : [parseLine(line, path, index + 1)],
  );
  if (prompts.length === 0) {
    throw new InputError('prompts-empty', `Reading the prompts "${path}" failed: it holds no prompt`, {
      file: path,
    });
  }
  return prompts;
}

/**
 * Reads `2,100,524`, with spaces allowed around ids. Throws `UsageError` `prompt-ids-malformed` naming the first item that is no
 * whole number from 0 to 2147483647.
 */
export function parsePromptIds(text: string): number[] {
  return text.split(',').map((item) => {
    const id = /^\s*[0-9]+\s*$/.test(item) ? Number(item) : Number.NaN;
    if (idSchema.safeParse(id).success) return id;
    throw new UsageError(
      'prompt-ids-malformed',
      `Reading the prompt ids "${text}" failed: "${item}" is no whole number from 0 to 2147483647`,
      { text, item },
    );
  });
}

function parseLine(line: string, path: string, lineNumber: number): Prompt {
  const fail = (reason: string, cause?: unknown): InputError =>
    new InputError(
      'prompts-malformed',
      `Reading the prompts "${path}" failed: line ${lineNumber} ${reason}`,
      { file: path, line: lineNumber },
      { cause },
    );
  let json: unknown;
  try {
    json = parseJson(line, path);
  } catch (cause) {
    throw fail(`is no JSON (${cause instanceof Error ? cause.message : String(cause)})`, cause);
  }
  const parsed = lineSchema.safeParse(json);
  if (!parsed.success) {
    throw fail(
      'is neither {"prompt": text} nor {"prompt_ids": [ids]} with at least one id nor a text',
      parsed.error,
    );
  }
  if (typeof parsed.data === 'string') return parsed.data;
  return 'prompt' in parsed.data ? parsed.data.prompt : parsed.data.prompt_ids;
}

function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}

async function readBytes(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new InputError(
      'prompt-file-unreadable',
      `Reading the text "${path}" failed: ${failureReason(cause)}`,
      { file: path },
      { cause },
    );
  }
}

/** Offset of the first byte that begins no valid UTF-8 sequence (Unicode 16, table 3-7), null where all are valid. */
function firstInvalidByte(bytes: Uint8Array): number | null {
  let at = 0;
  while (at < bytes.length) {
    const lead = bytes[at]!;
    const length =
      lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length === 0 || at + length > bytes.length) return at;
    // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
    const lowest = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const highest = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    for (let next = 1; next < length; next++) {
      const byte = bytes[at + next]!;
      if (byte < (next === 1 ? lowest : 0x80) || byte > (next === 1 ? highest : 0xbf)) return at;
    }
    at += length;
  }
  return null;
}
