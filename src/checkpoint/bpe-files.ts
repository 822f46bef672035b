import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InputError } from '../base/errors.js';
import type { JsonObject } from '../base/json.js';
import { readJsonFile } from './json-file.js';
import { malformed } from './special-tokens.js';

/** Classes whose vocab.json and merges.txt mean GPT-2's byte-level BPE and nothing else. */
const byteLevelClasses = new Set(['GPT2Tokenizer', 'GPT2TokenizerFast', 'OPTTokenizer']);

/**
 * Builds what tokenizer.json would hold from vocab.json and merges.txt: GPT-2's byte-level BPE, which is all that
 * most OPT repositories ship. Returns null where neither file exists. Throws `InputError` naming the file where one
 * of the two is missing or malformed, or where the tokenizer's class splits text in another way.
 */
export async function readBpeFiles(directory: string, config: JsonObject): Promise<JsonObject | null> {
  const vocabJson = await readJsonFile(directory, 'vocab.json');
  const mergesText = await readText(directory, 'merges.txt');
  if (vocabJson === null && mergesText === null) return null;
  if (vocabJson === null || mergesText === null) {
    const [absent, present] =
      vocabJson === null ? ['vocab.json', 'merges.txt'] : ['merges.txt', 'vocab.json'];
    throw new InputError(
      'tokenizer-file-missing',
      `Opening the tokenizer in "${directory}" failed: "${present}" is there and "${absent}" is not, both are needed`,
      { directory, file: absent },
    );
  }
  const tokenizerClass = config.tokenizer_class;
  if (typeof tokenizerClass === 'string' && !byteLevelClasses.has(tokenizerClass)) {
    throw new InputError(
      'tokenizer-class-unsupported',
      `Opening the tokenizer in "${directory}" failed: "vocab.json" and "merges.txt" of class "${tokenizerClass}" are not read, a "tokenizer.json" is needed`,
      { directory, tokenizerClass },
    );
  }
  const vocab = checkedVocab(vocabJson);
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: {
      type: 'ByteLevel',
      add_prefix_space: config.add_prefix_space === true,
      trim_offsets: true,
      use_regex: true,
    },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: 'BPE', unk_token: null, fuse_unk: false, vocab, merges: parseMerges(mergesText, vocab) },
  };
}

function checkedVocab(value: unknown): JsonObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw malformed('vocab.json', 'it holds no object of token to id');
  }
  const owners = new Map<number, string>();
  for (const [token, id] of Object.entries(value as JsonObject)) {
    if (typeof id !== 'number' || !Number.isSafeInteger(id) || id < 0) {
      throw malformed('vocab.json', `the id of token "${token}" is no whole number of at least 0`);
    }
    const other = owners.get(id);
    if (other !== undefined)
      throw malformed('vocab.json', `tokens "${other}" and "${token}" share the id ${id}`);
    owners.set(id, token);
  }
  if (owners.size === 0) throw malformed('vocab.json', 'it holds no token');
  return value as JsonObject;
}

/** Lines of two tokens, the earliest merge first; a first line `#version: …` is a comment. */
function parseMerges(text: string, vocab: JsonObject): string[][] {
  const merges: string[][] = [];
  const lines = text.split(/\r?\n/);
  lines.forEach((line, index) => {
    if (line === '' || line.startsWith('#version')) return;
    const pair = line.split(' ');
    const [left, right] = pair;
    if (pair.length !== 2 || left === undefined || right === undefined || left === '' || right === '') {
      throw malformed('merges.txt', `line ${index + 1} is not two tokens with one space between them`);
    }
    for (const token of [left, right, left + right]) {
      if (!Object.hasOwn(vocab, token)) {
        throw malformed('merges.txt', `line ${index + 1} needs token "${token}", which "vocab.json" lacks`);
      }
    }
    merges.push([left, right]);
  });
  return merges;
}

async function readText(directory: string, name: string): Promise<string | null> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(join(directory, name));
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw new InputError(
      'file-unreadable',
      `Reading "${name}" failed: ${code ?? String(cause)}`,
      { file: name },
      { cause },
    );
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw malformed(name, 'its bytes are not UTF-8');
  }
}
