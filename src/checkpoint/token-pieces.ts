import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.js';

/**
 * One step from token strings to text, taking one token at a time. `push` returns what is certain by now and
 * withholds what a later token can still change; `flush` ends the text and returns the rest.
 */
export interface PieceDecoder {
  push(piece: string): string[];
  flush(): string[];
}

/**
 * The decoder that `decoder` of tokenizer.json describes, as the tokenizers library runs it over a whole text, made
 * incremental. Each call of the returned function starts a new text. Throws `InputError` for a decoder that language
 * models with a byte-level or SentencePiece vocabulary do not use.
 */
export function compilePieceDecoder(decoder: JsonValue | undefined): () => PieceDecoder {
  const steps = stepsOf(decoder).map(compileStep);
  const fused = steps.findIndex((step) => step.kind === 'fuse');
  const strip = steps.findIndex((step) => step.kind === 'strip');
  if (strip >= 0 && (fused < 0 || fused > strip || strip !== steps.length - 1))
    throw unsupported('Strip before Fuse');
  if (fused >= 0 && steps.slice(fused + 1).some((step) => step.kind !== 'strip'))
    throw unsupported('steps after Fuse');
  return () => new Chain(steps.map((step) => step.create()));
}

interface Step {
  readonly kind: 'piece' | 'fuse' | 'strip';
  create(): PieceDecoder;
}

function stepsOf(decoder: JsonValue | undefined): JsonObject[] {
  if (!isJsonObject(decoder)) throw unsupported('none');
  if (decoder.type !== 'Sequence') return [decoder];
  if (!Array.isArray(decoder.decoders)) throw unsupported('Sequence without decoders');
  return decoder.decoders.flatMap(stepsOf);
}

function compileStep(step: JsonObject): Step {
  switch (step.type) {
    case 'ByteLevel':
      return { kind: 'piece', create: () => new ByteLevelPieces() };
    case 'ByteFallback':
      return { kind: 'piece', create: () => new ByteFallbackPieces() };
    case 'Fuse':
      return { kind: 'fuse', create: () => new EachPiece((piece) => piece) };
    case 'Replace': {
      const { pattern, content } = step;
      if (!isJsonObject(pattern) || typeof pattern.String !== 'string' || typeof content !== 'string') {
        throw unsupported('Replace by a regular expression');
      }
      const from = pattern.String;
      return { kind: 'piece', create: () => new EachPiece((piece) => piece.replaceAll(from, () => content)) };
    }
    case 'Strip': {
      const { content, start, stop } = step;
      if (typeof content !== 'string' || typeof start !== 'number' || (stop ?? 0) !== 0) {
        throw unsupported('Strip at the end');
      }
      return { kind: 'strip', create: () => new LeadingStrip(content, start) };
    }
    case 'Metaspace': {
      const mark = typeof step.replacement === 'string' ? step.replacement : '▁';
      const keepsFirst =
        step.prepend_scheme === 'never' ||
        (step.prepend_scheme === undefined && step.add_prefix_space === false);
      return { kind: 'piece', create: () => new MetaspacePieces(mark, !keepsFirst) };
    }
    default:
      throw unsupported(String(step.type));
  }
}

function unsupported(name: string): InputError {
  return new InputError(
    'tokenizer-decoder-unsupported',
    `Reading "tokenizer.json" failed: its decoder "${name}" is not supported, wanted is ByteLevel, Metaspace, or a sequence of Replace, ByteFallback, Fuse and Strip at the start`,
    { file: 'tokenizer.json', decoder: name },
  );
}

class Chain implements PieceDecoder {
  readonly #steps: readonly PieceDecoder[];

  constructor(steps: readonly PieceDecoder[]) {
    this.#steps = steps;
  }

  push(piece: string): string[] {
    return this.#through([piece], 0);
  }

  flush(): string[] {
    const out: string[] = [];
    this.#steps.forEach((step, index) => {
      out.push(...this.#through(step.flush(), index + 1));
    });
    return out;
  }

  #through(pieces: string[], from: number): string[] {
    let current = pieces;
    for (const step of this.#steps.slice(from)) current = current.flatMap((piece) => step.push(piece));
    return current;
  }
}

class EachPiece implements PieceDecoder {
  readonly #change: (piece: string) => string;

  constructor(change: (piece: string) => string) {
    this.#change = change;
  }

  push(piece: string): string[] {
    return [this.#change(piece)];
  }

  flush(): string[] {
    return [];
  }
}

/** GPT-2's alphabet of printable characters, one for each byte (github.com/openai/gpt-2, encoder.py), inverted. */
const byteOfCharacter: ReadonlyMap<string, number> = (() => {
  const printable = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  const table = new Map<string, number>();
  let shifted = 256;
  for (let byte = 0; byte < 256; byte++) {
    table.set(String.fromCharCode(printable(byte) ? byte : shifted++), byte);
  }
  return table;
})();

/** Tokens spell bytes; the bytes of all tokens together are UTF-8, and what is not becomes U+FFFD. */
class ByteLevelPieces implements PieceDecoder {
  readonly #utf8 = new TextDecoder('utf-8', { ignoreBOM: true });

  push(piece: string): string[] {
    return [this.#utf8.decode(spelledBytes(piece), { stream: true })];
  }

  flush(): string[] {
    return [this.#utf8.decode()];
  }
}

/** A token with a character outside the alphabet (an added token) stands for its own UTF-8. */
function spelledBytes(piece: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of piece) {
    const byte = byteOfCharacter.get(character);
    if (byte === undefined) return Buffer.from(piece, 'utf8');
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

/**
 * Runs of tokens `<0xE9>` are bytes. The tokenizers library decodes a run as one: all of it when it is UTF-8, else
 * one U+FFFD for each byte; so a run is withheld until it ends.
 */
class ByteFallbackPieces implements PieceDecoder {
  #run: number[] = [];

  push(piece: string): string[] {
    const hex = /^<0x([0-9A-Fa-f]{2})>$/.exec(piece)?.[1];
    if (hex === undefined) return [...this.flush(), piece];
    this.#run.push(Number.parseInt(hex, 16));
    return [];
  }

  flush(): string[] {
    if (this.#run.length === 0) return [];
    const bytes = Uint8Array.from(this.#run);
    this.#run = [];
    try {
      return [new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)];
    } catch {
      return ['\uFFFD'.repeat(bytes.length)];
    }
  }
}

class LeadingStrip implements PieceDecoder {
  readonly #content: string;
  #left: number;

  constructor(content: string, start: number) {
    this.#content = content;
    this.#left = start;
  }

  push(piece: string): string[] {
    let rest = piece;
    while (this.#left > 0 && rest !== '') {
      if (!rest.startsWith(this.#content)) {
        this.#left = 0;
        break;
      }
      rest = rest.slice(this.#content.length);
      this.#left -= 1;
    }
    return [rest];
  }

  flush(): string[] {
    return [];
  }
}

class MetaspacePieces implements PieceDecoder {
  readonly #mark: string;
  #dropsMark: boolean;

  constructor(mark: string, dropsFirst: boolean) {
    this.#mark = mark;
    this.#dropsMark = dropsFirst;
  }

  push(piece: string): string[] {
    const text = piece.replaceAll(this.#mark, this.#dropsMark ? '' : ' ');
    this.#dropsMark = false;
    return [text];
  }

  flush(): string[] {
    return [];
  }
}
