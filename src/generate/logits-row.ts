import { littleEndianBytes, sha256Hex } from '../base/digest.js';

/**
 * A row of finite logits that the host has, or can have when it wants: what has come from a device is copied when it is first
 * asked for, and let go with the row.
 */
export class LogitsRow {
  /** Id of the largest logit; of equal ones the lowest. */
  readonly greedyId: number;
  readonly digest: LogitsDigest;
  readonly #logits: () => Float32Array;

  /** `logits` gives the same row every time; it is not changed before the digest is known. */
  constructor(greedyId: number, logits: () => Float32Array) {
    this.greedyId = greedyId;
    this.#logits = logits;
    this.digest = new LogitsDigest(logits);
  }

  get logits(): Float32Array {
    return this.#logits(); // [vocabSize]
  }
}

/** SHA-256 of a row of finite logits as `logitsDigest` gives it, computed when first asked for; the row is let go then. */
export class LogitsDigest {
  #row: (() => Float32Array) | null;
  #hex = '';

  constructor(row: () => Float32Array) {
    this.#row = row;
  }

  get hex(): string {
    if (this.#row !== null) this.#hex = sha256Hex(littleEndianBytes(this.#row()));
    this.#row = null;
    return this.#hex;
  }
}
