import { littleEndianBytes, sha256Hex } from '../base/digest.js';

/** SHA-256 of a row of finite logits as `logitsDigest` gives it, computed when first asked for; the row is let go then. */
export class LogitsDigest {
  #row: Float32Array | null;
  #hex = '';

  /** `row` is not changed before the digest is known. */
  constructor(row: Float32Array) {
    this.#row = row;
  }

  get hex(): string {
    if (this.#row !== null) this.#hex = sha256Hex(littleEndianBytes(this.#row));
    this.#row = null;
    return this.#hex;
  }
}

/** A row of finite logits on the host. */
export interface LogitsRow {
  readonly logits: Float32Array; // [vocabSize]
  /** Id of the largest logit; of equal ones the lowest. */
  readonly greedyId: number;
  readonly digest: LogitsDigest;
}
