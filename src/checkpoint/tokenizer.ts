import { Tokenizer as HubTokenizer } from '@huggingface/tokenizers';
import { InputError } from '../base/errors.js';
import { TextStream } from './text-stream.js';
import { compilePieceDecoder, type PieceDecoder } from './token-pieces.js';
import type { TokenizerFiles } from './tokenizer-files.js';
import { readTokenizerFiles } from './tokenizer-files.js';

export { TextStream } from './text-stream.js';

export interface EncodeOptions {
  /** Add BOS and EOS as the checkpoint's files say (OPT: one leading `</s>`). Default true. */
  readonly addSpecialTokens?: boolean;
}

export interface DecodeOptions {
  /** Leave out special tokens such as `</s>`. Default true. */
  readonly skipSpecialTokens?: boolean;
}

/** Text to ids and back, equal to transformers 5 on the same files. */
export class Tokenizer {
  /** File that the vocabulary came from. */
  readonly source: TokenizerFiles['source'];
  /** One more than the largest id that has a token; a model's vocabulary may be padded beyond it. */
  readonly vocabularySize: number;
  readonly #encoder: HubTokenizer;
  readonly #newDecoder: () => PieceDecoder;
  readonly #specialIds: ReadonlySet<number>;
  readonly #pieces: readonly (string | undefined)[];

  constructor(files: TokenizerFiles) {
    this.source = files.source;
    this.#newDecoder = compilePieceDecoder(files.tokenizer.decoder);
    try {
      this.#encoder = new HubTokenizer(files.tokenizer, files.config);
    } catch (cause) {
      throw new InputError(
        'tokenizer-malformed',
        `Opening the tokenizer of "${files.source}" failed: ${cause instanceof Error ? cause.message : String(cause)}`,
        { file: files.source },
        { cause },
      );
    }
    // Indexed by id, added tokens included; sparse where ids have gaps.
    this.#pieces = this.#encoder.model?.vocab ?? [];
    this.vocabularySize = this.#pieces.length;
    this.#specialIds = new Set(files.addedTokens.filter((token) => token.special).map((token) => token.id));
  }

  /** Special tokens that stand literally in `text` become their ids, as in transformers. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    const ids: number[] = this.#encoder.encode(text, {
      add_special_tokens: options.addSpecialTokens ?? true,
    }).ids;
    // The library gives undefined for a piece without an id where the model has no unknown token.
    if (!ids.every((id) => Number.isInteger(id))) {
      throw new InputError(
        'text-without-token',
        `Encoding the text failed: a part of it has no token in the vocabulary of "${this.source}"`,
        { file: this.source },
      );
    }
    return ids;
  }

  /** Ids without a token (vocabulary padding) give no text. */
  decode(ids: Iterable<number>, options: DecodeOptions = {}): string {
    const stream = this.stream(options);
    const parts: string[] = [];
    for (const id of ids) parts.push(stream.push(id));
    parts.push(stream.flush());
    return parts.join('');
  }

  /** A new text that comes token by token. */
  stream(options: DecodeOptions = {}): TextStream {
    const skipped = (options.skipSpecialTokens ?? true) ? this.#specialIds : null;
    return new TextStream(this.#newDecoder(), (id) => {
      if (skipped?.has(id) === true) return null;
      return this.#pieces[id] ?? null;
    });
  }
}

/**
 * Opens the tokenizer of a checkpoint folder: `tokenizer.json`, or `vocab.json` with `merges.txt` where that is all
 * there is, each with tokenizer_config.json, special_tokens_map.json and added_tokens.json where present. Throws
 * `InputError`: `tokenizer-missing`, `tokenizer-file-missing`, `tokenizer-malformed`, `json-*`, and others by name.
 */
export async function openTokenizer(directory: string): Promise<Tokenizer> {
  return new Tokenizer(await readTokenizerFiles(directory));
}
