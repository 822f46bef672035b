import type { PieceDecoder } from './token-pieces.js';

/**
 * Text from token ids, one at a time. What it returns never ends inside a character, and all that it returned since
 * the start, with `flush` at the end, equals `decode` of all ids. Cost and memory of a token do not grow with the
 * number of tokens before it.
 */
export class TextStream {
  readonly #decoder: PieceDecoder;
  readonly #pieceOf: (id: number) => string | null;

  /** `pieceOf` gives the token string of an id, null for one that has no text. */
  constructor(decoder: PieceDecoder, pieceOf: (id: number) => string | null) {
    this.#decoder = decoder;
    this.#pieceOf = pieceOf;
  }

  /** Takes one id and returns the text that is certain now; often empty, never half a character. */
  push(id: number): string {
    const piece = this.#pieceOf(id);
    return piece === null ? '' : this.#decoder.push(piece).join('');
  }

  /** Ends the text: returns what was withheld, U+FFFD for bytes of a character that never became whole. */
  flush(): string {
    return this.#decoder.flush().join('');
  }
}
