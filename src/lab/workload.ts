import { randomBytes } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileAtomic } from '../base/atomic-file.js';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { InputError, TamperedError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { parseJson } from '../base/json.js';
import type { Tokenizer } from '../checkpoint/tokenizer.js';
import type { Protocol, ProtocolPrompt } from './protocol-schema.js';

/** The workload's items as token ids: each a list of prompts. */
export type Items = readonly (readonly (readonly number[])[])[];

const itemSchema = z.strictObject({
  prompts: z
    .array(
      z.union([
        z.strictObject({ promptIds: z.array(z.int().min(0).max(0x7fffffff)).min(1) }),
        z.strictObject({ text: z.string().min(1), tokens: z.int().min(1) }),
      ]),
    )
    .min(1),
});

/**
 * The items of a protocol as ids. Text is encoded with special tokens and cut to the stated number of ids.
 * @throws InputError `prompt-too-short`, `no-tokenizer`, `prompts-malformed`; TamperedError `prompts-changed`
 */
export async function readItems(
  { workload }: Protocol,
  folder: string,
  tokenizer: Tokenizer | null,
): Promise<Items> {
  const items = Array.isArray(workload.items)
    ? workload.items
    : await readItemFile(join(folder, workload.items.file), workload.items.saltedSha256);
  return items.map(({ prompts }, item) => prompts.map((prompt) => idsOf(prompt, item, tokenizer)));
}

function idsOf(prompt: ProtocolPrompt, item: number, tokenizer: Tokenizer | null): readonly number[] {
  if ('promptIds' in prompt) return prompt.promptIds;
  if (tokenizer === null) {
    throw new InputError(
      'no-tokenizer',
      `Cannot encode the text of item ${item + 1}: the model has no tokenizer, want promptIds`,
    );
  }
  const ids = tokenizer.encode(prompt.text);
  if (ids.length >= prompt.tokens) return ids.slice(0, prompt.tokens);
  throw new InputError(
    'prompt-too-short',
    `Cannot use the text of item ${item + 1}: it has ${ids.length} tokens, want at least ${prompt.tokens}`,
    { item, tokens: ids.length, wanted: prompt.tokens },
  );
}

async function readItemFile(path: string, saltedSha256: string) {
  const bytes = await readBytes(path);
  const found = sha256Hex(Buffer.concat([await saltOf(path), bytes]));
  if (found !== saltedSha256) {
    throw new TamperedError(
      'prompts-changed',
      `Cannot use the prompts "${path}": their salted digest is ${found}, the protocol wants ${saltedSha256}`,
      { path, found, wanted: saltedSha256 },
    );
  }
  return parseItems(bytes, path);
}

function parseItems(bytes: Uint8Array, path: string) {
  const lines = Buffer.from(bytes).toString('utf8').split('\n');
  const items = lines.flatMap((line, index) => {
    if (line.trim() === '') return [];
    const parsed = itemSchema.safeParse(parseJson(line, `${path} line ${index + 1}`));
    if (parsed.success) return [parsed.data];
    throw new InputError(
      'prompts-malformed',
      `Reading "${path}" failed at line ${index + 1}: ${parsed.error.issues[0]?.message}`,
      { path, line: index + 1 },
    );
  });
  if (items.length > 0) return items;
  throw new InputError('prompts-malformed', `Reading "${path}" failed: it holds no item`, { path });
}

/**
 * The salted digest of a prompt file that a protocol names. Writes 32 random bytes into `<file>.salt` (mode 0600)
 * where there are none yet.
 */
export async function saltedPromptDigest(path: string): Promise<string> {
  const bytes = await readBytes(path);
  parseItems(bytes, path);
  if ((await stat(`${path}.salt`).catch(() => null)) === null) {
    await writeFileAtomic(`${path}.salt`, `${randomBytes(32).toString('hex')}\n`, {
      mode: 0o600,
      replace: false,
    });
  }
  return sha256Hex(Buffer.concat([await saltOf(path), bytes]));
}

async function saltOf(path: string): Promise<Buffer> {
  const text = (await readBytes(`${path}.salt`)).toString('utf8').trim();
  if (/^[0-9a-f]{64}$/.test(text)) return Buffer.from(text, 'hex');
  throw new InputError('bad-salt', `Cannot read "${path}.salt": want 64 lower-case hex digits`, { path });
}

async function readBytes(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new InputError(
      'unreadable-file',
      `Cannot read "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  }
}

/** SHA-256 over salt and the canonical JSON of an item's ids, as manifests hold it. */
export function itemDigest(prompts: Items[number], salt: Uint8Array): string {
  return sha256Hex(Buffer.concat([salt, Buffer.from(canonicalJson(prompts), 'utf8')]));
}
