import type { TextStream, Tokenizer } from '../checkpoint/tokenizer.js';
import type { LogitsDigest } from './logits-row.js';
import type { GenerateOptions } from './options.js';
import type { FinishReason, RequestOutcome, TokenEvent } from './outcome.js';
import { StopText } from './stop-text.js';

/** What one request of a batch has come to. */
export class RequestState {
  readonly index: number;
  readonly slot: number;
  readonly promptTokenIds: readonly number[];
  readonly #options: GenerateOptions;
  readonly #eosTokenIds: readonly number[];
  readonly #limit: number; // new tokens that options and context allow
  readonly #stream: TextStream | null;
  readonly #stopText: StopText;
  readonly #tokenIds: number[] = [];
  readonly #logitsDigests: LogitsDigest[] = [];
  #text = '';
  #finishReason: FinishReason | null = null;

  constructor(given: {
    index: number;
    slot: number;
    promptTokenIds: readonly number[];
    options: GenerateOptions;
    eosTokenIds: readonly number[];
    capacity: number; // positions of a KV slot
    tokenizer: Tokenizer | null;
  }) {
    this.index = given.index;
    this.slot = given.slot;
    this.promptTokenIds = given.promptTokenIds;
    this.#options = given.options;
    this.#eosTokenIds = given.eosTokenIds;
    // The last new token needs no KV of its own: it is chosen, never fed back.
    this.#limit = Math.min(given.options.maxNewTokens, given.capacity - given.promptTokenIds.length + 1);
    this.#stream = given.tokenizer === null ? null : given.tokenizer.stream();
    this.#stopText = new StopText(given.options.stop);
  }

  get finished(): boolean {
    return this.#finishReason !== null;
  }

  /** True when the next token is the last, whatever it is. */
  get atLastToken(): boolean {
    return this.#tokenIds.length + 1 >= this.#limit;
  }

  /** The token to feed next and its position in the sequence. */
  get next(): { tokenId: number; position: number } {
    const position = this.promptTokenIds.length + this.#tokenIds.length - 1;
    return { tokenId: this.#tokenIds.at(-1)!, position };
  }

  /** Position whose logits choose the next token: that of the last token fed. */
  get choosingPosition(): number {
    return this.promptTokenIds.length + this.#tokenIds.length - 1;
  }

  /** Takes a chosen token and says what to show. */
  accept(tokenId: number, digest: LogitsDigest, elapsedNs: bigint): TokenEvent {
    const index = this.#tokenIds.length;
    this.#tokenIds.push(tokenId);
    this.#logitsDigests.push(digest);
    const ended = this.#eosTokenIds.includes(tokenId) && !this.#options.ignoreEos;
    let text = ended ? '' : this.#stopText.push(this.#stream?.push(tokenId) ?? '');
    if (ended || this.#stopText.stopped) this.#finishReason = 'stop';
    else if (this.#tokenIds.length >= this.#limit) this.#finishReason = 'length';
    if (this.finished) text += this.#rest();
    this.#text += text;
    return {
      request: this.index,
      index,
      tokenId,
      text,
      get logitsDigest() {
        return digest.hex;
      },
      elapsedNs,
    };
  }

  /** Ends an unfinished request; keeps what it has. */
  interrupt(): void {
    if (this.finished) return;
    this.#text += this.#rest();
    this.#finishReason = 'interrupted';
  }

  outcome(): RequestOutcome {
    return {
      promptTokenIds: this.promptTokenIds,
      tokenIds: [...this.#tokenIds],
      text: this.#text,
      finishReason: this.#finishReason ?? 'interrupted',
      logitsDigests: this.#logitsDigests.map(({ hex }) => hex),
    };
  }

  #rest(): string {
    if (this.#stopText.stopped) return '';
    return this.#stopText.push(this.#stream?.flush() ?? '') + this.#stopText.flush();
  }
}
