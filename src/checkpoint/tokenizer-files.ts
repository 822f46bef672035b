import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.js';
import { readBpeFiles } from './bpe-files.js';
import { readJsonFile } from './json-file.js';
import {
  type AddedTokenEntry,
  AddedTokens,
  checkedEntry,
  malformed,
  mergeTokenNames,
  tokenContent,
} from './special-tokens.js';

/** What a folder says about its tokenizer, in the form of tokenizer.json and tokenizer_config.json. */
export interface TokenizerFiles {
  /** `tokenizer.json`, or `vocab.json` where the tokenizer was built from vocab.json and merges.txt. */
  readonly source: 'tokenizer.json' | 'vocab.json';
  readonly tokenizer: JsonObject;
  readonly config: JsonObject;
  readonly addedTokens: readonly AddedTokenEntry[];
}

/** GPT-2's pattern; `\s` there is Unicode white space, which U+0085 belongs to and U+FEFF does not. */
const gpt2Pattern = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/**
 * Reads the tokenizer files of a checkpoint folder. Special tokens follow transformers 5: see `AddedTokens`; where
 * the config has `add_bos_token` or `add_eos_token` they decide what is added around a text, else the
 * `post_processor` of tokenizer.json does. Throws `InputError` naming the file.
 */
export async function readTokenizerFiles(directory: string): Promise<TokenizerFiles> {
  const baseConfig = await readObject(directory, 'tokenizer_config.json');
  const config = mergeTokenNames(baseConfig ?? {}, await readObject(directory, 'special_tokens_map.json'));
  const whole = await readObject(directory, 'tokenizer.json');
  const tokenizer = whole ?? withDefaultNames(await readBpeFiles(directory, config), config);
  if (tokenizer === null)
    throw missing(directory, (await readObject(directory, 'added_tokens.json')) !== null);

  const source = whole === null ? 'vocab.json' : 'tokenizer.json';
  const model = knownModel(tokenizer.model, source);
  const vocab = vocabOf(model, source);
  const listed = tokenizer.added_tokens ?? [];
  if (!Array.isArray(listed)) throw malformed(source, 'its added_tokens is no list');
  const added = new AddedTokens(
    vocab,
    listed.map((entry) => checkedEntry(entry, source)),
  );
  added.addFrom(config, await readObject(directory, 'added_tokens.json'));
  const addedTokens = added.list();
  return {
    source,
    config,
    addedTokens,
    tokenizer: {
      ...tokenizer,
      model,
      added_tokens: addedTokens,
      normalizer: tokenizer.normalizer ?? null,
      pre_tokenizer: preTokenizer(tokenizer.pre_tokenizer ?? null, config),
      post_processor: postProcessor(tokenizer.post_processor ?? null, config, addedTokens),
      decoder: tokenizer.decoder ?? null,
    },
  };
}

async function readObject(directory: string, name: string): Promise<JsonObject | null> {
  const value = await readJsonFile(directory, name);
  if (value === null) return null;
  if (!isJsonObject(value)) throw malformed(name, 'it holds no object');
  return value;
}

/** GPT-2's own repository names no tokens at all: its class does. */
function withDefaultNames(tokenizer: JsonObject | null, config: JsonObject): JsonObject | null {
  const end = '<|endoftext|>';
  if (tokenizer === null) return null;
  const vocab = isJsonObject(tokenizer.model) ? tokenizer.model.vocab : undefined;
  if (!isJsonObject(vocab) || !Object.hasOwn(vocab, end)) return tokenizer;
  for (const name of ['bos_token', 'eos_token', 'unk_token']) config[name] ??= end;
  return tokenizer;
}

function missing(directory: string, hasAddedTokens: boolean): InputError {
  return new InputError(
    'tokenizer-missing',
    `Opening the tokenizer in "${directory}" failed: it holds neither "tokenizer.json" nor "vocab.json" with "merges.txt"${hasAddedTokens ? ', only "added_tokens.json"' : ''}; --prompt-ids works without a tokenizer`,
    { directory },
  );
}

/** The library takes a model of unknown type for a table of whole words, so it is refused here. */
function knownModel(model: JsonValue | undefined, file: string): JsonObject {
  if (!isJsonObject(model)) throw malformed(file, 'it has no model');
  // Files written before 2020 leave the type out.
  const type = model.type ?? (Array.isArray(model.merges) ? 'BPE' : null);
  if (type !== 'BPE' && type !== 'Unigram') {
    throw malformed(file, `its model type is "${String(type)}", wanted is "BPE" or "Unigram"`);
  }
  if (type === 'BPE' && !Array.isArray(model.merges)) throw malformed(file, 'its model has no merges');
  return { ...model, type };
}

function vocabOf(model: JsonObject, file: string): Map<string, number> {
  const { vocab } = model;
  const map = new Map<string, number>();
  if (Array.isArray(vocab)) {
    vocab.forEach((entry, id) => {
      const token = Array.isArray(entry) ? entry[0] : undefined;
      if (typeof token !== 'string')
        throw malformed(file, `entry ${id} of its vocabulary is no token with a score`);
      map.set(token, id);
    });
    return map;
  }
  if (!isJsonObject(vocab)) throw malformed(file, 'its model has no vocabulary');
  for (const [token, id] of Object.entries(vocab)) {
    if (typeof id !== 'number' || !Number.isSafeInteger(id) || id < 0) {
      throw malformed(file, `the id of token "${token}" is no whole number of at least 0`);
    }
    map.set(token, id);
  }
  return map;
}

/**
 * `ByteLevel` with its pattern as an explicit split. The library's built-in pattern takes JavaScript's `\s`, which
 * differs from Unicode white space in two characters; a `Split` is translated correctly.
 */
function preTokenizer(given: JsonValue, config: JsonObject): JsonValue {
  if (!isJsonObject(given) || given.type !== 'ByteLevel') return given;
  const prefix =
    typeof config.add_prefix_space === 'boolean' ? config.add_prefix_space : given.add_prefix_space === true;
  const byteLevel = { ...given, add_prefix_space: prefix };
  // The prefix belongs before the first piece alone, which the built-in order of steps takes care of.
  if (prefix || given.use_regex === false) return byteLevel;
  return {
    type: 'Sequence',
    pretokenizers: [
      { type: 'Split', pattern: { Regex: gpt2Pattern }, behavior: 'Isolated', invert: false },
      { ...byteLevel, use_regex: false },
    ],
  };
}

function postProcessor(given: JsonValue, config: JsonObject, added: readonly AddedTokenEntry[]): JsonValue {
  const { add_bos_token: addBos, add_eos_token: addEos } = config;
  if (addBos === undefined && addEos === undefined) return given;
  const bos = addBos === true ? specialToken(config, 'bos_token', added) : null;
  const eos = addEos === true ? specialToken(config, 'eos_token', added) : null;
  const specials = [bos, eos].filter((token) => token !== null);
  const item = (token: AddedTokenEntry): JsonObject => ({ SpecialToken: { id: token.content, type_id: 0 } });
  const around = (name: string): JsonObject[] => [
    ...(bos === null ? [] : [item(bos)]),
    { Sequence: { id: name, type_id: 0 } },
    ...(eos === null ? [] : [item(eos)]),
  ];
  return {
    type: 'TemplateProcessing',
    single: around('A'),
    pair: [...around('A'), ...around('B')],
    special_tokens: Object.fromEntries(
      specials.map((token) => [
        token.content,
        { id: token.content, ids: [token.id], tokens: [token.content] },
      ]),
    ),
  };
}

function specialToken(
  config: JsonObject,
  name: string,
  added: readonly AddedTokenEntry[],
): AddedTokenEntry | null {
  const content = tokenContent(config, name);
  return added.find((entry) => entry.content === content) ?? null;
}
