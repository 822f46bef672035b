import { InputError } from './errors.js';

/** A parsed JSON document. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;
export interface JsonObject {
  [key: string]: JsonValue;
}

export interface JsonLimits {
  /** Deepest nesting of arrays and objects; the parser recurses, so this also bounds its stack. */
  readonly depth: number;
  /** Most bytes (or UTF-16 units of a string source) that are looked at. */
  readonly length: number;
}

export const defaultJsonLimits: JsonLimits = { depth: 64, length: 256 * 1024 * 1024 };

/**
 * Strict RFC 8259 JSON. Beyond the grammar it refuses what readers disagree about: a repeated key, a byte order
 * mark, invalid UTF-8, numbers that binary64 turns into infinity, nesting beyond the limit. `NaN` and `Infinity`, which
 * Python writes, are refused with the name of their field. `source` is the text or its UTF-8 bytes; `name` names the
 * document in errors. Throws `InputError` with a code that begins with `json-` and line, column and path in its data.
 */
export function parseJson(
  source: string | Uint8Array,
  name: string,
  limits: Partial<JsonLimits> = {},
): JsonValue {
  const { depth, length } = { ...defaultJsonLimits, ...limits };
  if (source.length > length) {
    throw new InputError(
      'json-too-long',
      `Reading "${name}" failed: it holds ${source.length} bytes, at most ${length} are read`,
      { name, length: source.length, limit: length },
    );
  }
  return new Parser(typeof source === 'string' ? source : decode(source, name), name, depth).document();
}

/** True for a JSON object, not for an array or null. */
export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function decode(bytes: Uint8Array, name: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new InputError(
      'json-invalid-utf8',
      `Reading "${name}" failed: its bytes are not UTF-8`,
      { name },
      { cause },
    );
  }
}

const number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const word = /-?[A-Za-z0-9_.+-]+/y;
const wordCharacter = /[A-Za-z0-9_.+-]/;
const escapes: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

class Parser {
  private at = 0;
  private readonly path: (string | number)[] = [];

  constructor(
    private readonly text: string,
    private readonly name: string,
    private readonly depthLimit: number,
  ) {}

  document(): JsonValue {
    if (this.text.charCodeAt(0) === 0xfeff) this.fail('json-byte-order-mark', 'found a byte order mark');
    const value = this.value();
    this.space();
    if (this.at < this.text.length)
      this.fail('json-syntax', `found ${this.found()} after the end of the value`);
    return value;
  }

  private value(): JsonValue {
    this.space();
    switch (this.text.charCodeAt(this.at)) {
      case 0x7b:
        return this.object();
      case 0x5b:
        return this.array();
      case 0x22:
        return this.string();
      case 0x74:
        return this.literal('true', true);
      case 0x66:
        return this.literal('false', false);
      case 0x6e:
        return this.literal('null', null);
      default:
        return this.number();
    }
  }

  private object(): JsonObject {
    this.enter();
    const result: JsonObject = {};
    this.space();
    if (this.take(0x7d)) return this.leave(result);
    for (;;) {
      this.space();
      if (this.text.charCodeAt(this.at) !== 0x22)
        this.fail('json-syntax', `found ${this.found()}, a key in quotes is wanted`);
      const keyAt = this.at;
      const key = this.string();
      if (Object.hasOwn(result, key)) {
        this.at = keyAt;
        this.fail('json-duplicate-key', `the key ${JSON.stringify(key)} appears twice in one object`);
      }
      this.space();
      if (!this.take(0x3a)) this.fail('json-syntax', `found ${this.found()}, ":" is wanted`);
      this.path.push(key);
      const value = this.value();
      this.path.pop();
      // Assignment would call the setter of Object.prototype for this one name.
      if (key === '__proto__') {
        Object.defineProperty(result, key, { value, writable: true, enumerable: true, configurable: true });
      } else {
        result[key] = value;
      }
      this.space();
      if (this.take(0x2c)) continue;
      if (this.take(0x7d)) return this.leave(result);
      this.fail('json-syntax', `found ${this.found()}, "," or "}" is wanted`);
    }
  }

  private array(): JsonValue[] {
    this.enter();
    const result: JsonValue[] = [];
    this.space();
    if (this.take(0x5d)) return this.leave(result);
    for (;;) {
      this.path.push(result.length);
      result.push(this.value());
      this.path.pop();
      this.space();
      if (this.take(0x2c)) continue;
      if (this.take(0x5d)) return this.leave(result);
      this.fail('json-syntax', `found ${this.found()}, "," or "]" is wanted`);
    }
  }

  private string(): string {
    const { text } = this;
    let start = ++this.at;
    let result = '';
    for (;;) {
      const code = text.charCodeAt(this.at);
      if (code === 0x22) {
        result += text.slice(start, this.at++);
        return result;
      }
      if (code === 0x5c) {
        result += text.slice(start, this.at) + this.escape();
        start = this.at;
      } else if (code >= 0x20) {
        this.at++;
      } else {
        // NaN (past the end) lands here too.
        this.fail('json-syntax', `found ${this.found()} inside a string`);
      }
    }
  }

  private escape(): string {
    const letter = this.text.charAt(this.at + 1);
    if (letter === 'u') {
      const digits = this.text.slice(this.at + 2, this.at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(digits))
        this.fail('json-syntax', 'found "\\u" without four hexadecimal digits');
      this.at += 6;
      return String.fromCharCode(Number.parseInt(digits, 16));
    }
    const meaning = escapes[letter];
    if (meaning === undefined)
      this.fail('json-syntax', `found the unknown escape ${JSON.stringify(`\\${letter}`)}`);
    this.at += 2;
    return meaning;
  }

  private number(): number {
    number.lastIndex = this.at;
    const match = number.exec(this.text)?.[0];
    if (match === undefined || wordCharacter.test(this.text.charAt(this.at + match.length))) {
      this.fail('json-syntax', `found ${this.found()}, a value is wanted`);
    }
    const value = Number(match);
    if (!Number.isFinite(value)) {
      this.fail('json-number-range', `the number ${match.slice(0, 40)} is beyond binary64`);
    }
    this.at += match.length;
    return value;
  }

  private literal<T extends boolean | null>(spelling: string, value: T): T {
    word.lastIndex = this.at;
    if (word.exec(this.text)?.[0] !== spelling)
      this.fail('json-syntax', `found ${this.found()}, a value is wanted`);
    this.at += spelling.length;
    return value;
  }

  private enter(): void {
    if (++this.depth > this.depthLimit) {
      this.fail('json-too-deep', `nesting is deeper than ${this.depthLimit} levels`);
    }
    this.at++;
  }

  private depth = 0;

  private leave<T>(result: T): T {
    this.depth--;
    return result;
  }

  private take(code: number): boolean {
    if (this.text.charCodeAt(this.at) !== code) return false;
    this.at++;
    return true;
  }

  private space(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.at++;
    }
  }

  private found(): string {
    if (this.at >= this.text.length) return 'the end';
    word.lastIndex = this.at;
    const token = word.exec(this.text)?.[0] ?? String.fromCodePoint(this.text.codePointAt(this.at)!);
    return JSON.stringify(token.slice(0, 40));
  }

  private fail(code: string, problem: string): never {
    const before = this.text.slice(0, this.at);
    const line = before.split('\n').length;
    const column = this.at - (before.lastIndexOf('\n') + 1) + 1;
    const path = this.path.join('.').slice(0, 200);
    const place = `line ${line}, column ${column}${path === '' ? '' : ` (in ${JSON.stringify(path)})`}`;
    throw new InputError(code, `Reading "${this.name}" failed at ${place}: ${problem}`, {
      name: this.name,
      line,
      column,
      path,
    });
  }
}
