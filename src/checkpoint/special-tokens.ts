import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.js';

/** One entry of `added_tokens` in tokenizer.json. */
export interface AddedTokenEntry extends JsonObject {
  id: number;
  content: string;
  single_word: boolean;
  lstrip: boolean;
  rstrip: boolean;
  normalized: boolean;
  special: boolean;
}

/** Names of tokens that tokenizer_config.json and special_tokens_map.json may define. */
const namedTokens = [
  'bos_token',
  'eos_token',
  'unk_token',
  'sep_token',
  'pad_token',
  'cls_token',
  'mask_token',
];
const tokenLists = ['additional_special_tokens', 'extra_special_tokens'];

/**
 * The tokens that the small files beside a vocabulary add to it, as transformers 5 reads them: where
 * tokenizer_config.json has `added_tokens_decoder` that is the whole list, else special_tokens_map.json overrides
 * the named tokens and added_tokens.json gives further ones. Named tokens become special.
 */
export class AddedTokens {
  readonly #vocab: ReadonlyMap<string, number>;
  readonly #byContent = new Map<string, AddedTokenEntry>();

  constructor(vocab: ReadonlyMap<string, number>, existing: readonly AddedTokenEntry[]) {
    this.#vocab = vocab;
    for (const entry of existing) this.#byContent.set(entry.content, entry);
  }

  /** Takes in the three files; `config` is what tokenizer_config.json holds after `mergeTokenNames`. */
  addFrom(config: JsonObject, addedTokensFile: JsonObject | null): void {
    const named = specialContents(config);
    const decoder = config.added_tokens_decoder;
    if (isJsonObject(decoder)) {
      const entries = Object.entries(decoder).sort(([a], [b]) => Number(a) - Number(b));
      for (const [key, value] of entries) this.#addDecoderEntry(key, value);
    } else if (addedTokensFile !== null) {
      const entries = Object.entries(addedTokensFile).sort(([, a], [, b]) => Number(a) - Number(b));
      for (const [content, id] of entries) {
        const special = named.has(content);
        this.#add(plainEntry(checkedId(id, 'added_tokens.json', content), content, special));
      }
    }
    for (const content of named) {
      const known = this.#byContent.get(content);
      if (known !== undefined) known.special = true;
      else this.#add(plainEntry(this.#vocab.get(content) ?? this.#nextId(), content, true));
    }
  }

  /** In order of id, as tokenizer.json lists them. */
  list(): AddedTokenEntry[] {
    return [...this.#byContent.values()].sort((a, b) => a.id - b.id);
  }

  #addDecoderEntry(key: string, value: JsonValue): void {
    const id = /^[0-9]+$/.test(key) ? Number(key) : Number.NaN;
    if (!isJsonObject(value) || typeof value.content !== 'string') {
      throw malformed('tokenizer_config.json', `its added_tokens_decoder entry "${key}" has no content`);
    }
    this.#add(checkedEntry({ ...value, id }, 'tokenizer_config.json'));
  }

  #add(entry: AddedTokenEntry): void {
    if (!this.#byContent.has(entry.content)) this.#byContent.set(entry.content, entry);
  }

  /** The id that the tokenizers library gives a token that no file numbers. */
  #nextId(): number {
    let next = this.#vocab.size;
    for (const { id } of this.#byContent.values()) next = Math.max(next, id + 1);
    return next;
  }
}

/** tokenizer_config.json with the names of special_tokens_map.json laid over it. */
export function mergeTokenNames(config: JsonObject, specialTokensMap: JsonObject | null): JsonObject {
  if (specialTokensMap === null || isJsonObject(config.added_tokens_decoder)) return config;
  return { ...config, ...specialTokensMap };
}

/** The text of a named token, which the files give as a string or as an object with `content`; null where absent. */
export function tokenContent(config: JsonObject, name: string): string | null {
  return contentOf(config[name]);
}

/** Checks and completes one `added_tokens` entry. Throws `InputError` naming the file. */
export function checkedEntry(value: JsonValue, file: string): AddedTokenEntry {
  if (!isJsonObject(value) || typeof value.content !== 'string' || value.content === '') {
    throw malformed(file, 'an added token has no content');
  }
  const special = value.special === true;
  return {
    id: checkedId(value.id, file, value.content),
    content: value.content,
    single_word: value.single_word === true,
    lstrip: value.lstrip === true,
    rstrip: value.rstrip === true,
    normalized: typeof value.normalized === 'boolean' ? value.normalized : !special,
    special,
  };
}

export function malformed(file: string, reason: string): InputError {
  return new InputError('tokenizer-malformed', `Reading "${file}" failed: ${reason}`, { file });
}

function specialContents(config: JsonObject): Set<string> {
  const found = new Set<string>();
  const take = (value: JsonValue | undefined): void => {
    const content = contentOf(value);
    if (content !== null && content !== '') found.add(content);
  };
  for (const name of namedTokens) take(config[name]);
  for (const name of tokenLists) {
    const list = config[name];
    if (Array.isArray(list)) list.forEach(take);
    else if (isJsonObject(list)) Object.values(list).forEach(take);
  }
  return found;
}

function contentOf(value: JsonValue | undefined): string | null {
  if (typeof value === 'string') return value;
  return isJsonObject(value) && typeof value.content === 'string' ? value.content : null;
}

function checkedId(id: JsonValue | undefined, file: string, content: string): number {
  if (typeof id === 'number' && Number.isSafeInteger(id) && id >= 0) return id;
  throw malformed(file, `the id of token "${content}" is no whole number of at least 0`);
}

function plainEntry(id: number, content: string, special: boolean): AddedTokenEntry {
  return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: !special, special };
}
