import { randomBytes } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { storageError } from '../base/atomic-file.js';
import { littleEndianBytes } from '../base/digest.js';
import { unfinishedFile } from '../base/temporary-files.js';

/**
 * `--logits FILE.safetensors`: the row that chose each token, F32 `[generated tokens, vocabulary]`, tensor `logits`, or
 * `logits_0`, `logits_1`, … in a batch. Rows go to a temporary file as they come; the safetensors file, whose header
 * must know their number, appears whole at the end.
 */
export class LogitsFile {
  readonly #path: string;
  readonly #temporary: string;
  readonly #unfinished: readonly { settled(): void }[];
  readonly #vocabSize: number;
  /** Request of each row, in the order in which rows came. */
  readonly #requests: number[] = [];
  #rows: FileHandle | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(path: string, vocabSize: number) {
    this.#path = resolve(path);
    this.#vocabSize = vocabSize;
    const name = `.${basename(this.#path)}.${randomBytes(6).toString('hex')}`;
    this.#temporary = join(dirname(this.#path), name);
    this.#unfinished = ['rows', 'tmp'].map((ending) => unfinishedFile(`${this.#temporary}.${ending}`));
  }

  /** Keeps a row; rows of one request come in order. A failed write is told by `finish`. */
  add(request: number, logits: Float32Array): void {
    this.#requests.push(request);
    this.#writing = this.#writing.then(async () => {
      this.#rows ??= await open(`${this.#temporary}.rows`, 'w+');
      await this.#rows.writeFile(littleEndianBytes(logits));
    });
    this.#writing.catch(() => {});
  }

  /** Writes the safetensors file of `requests` requests; leaves nothing behind where it fails. */
  async finish(requests: number): Promise<void> {
    const size = this.#requests.length * this.#vocabSize * 4;
    try {
      await this.#writing;
      const file = await open(`${this.#temporary}.tmp`, 'w');
      try {
        await file.writeFile(this.#header(requests));
        for (let request = 0; request < requests; request++) await this.#copyRows(request, file);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(`${this.#temporary}.tmp`, this.#path);
    } catch (error) {
      throw storageError(error, 'write', this.#path, size);
    } finally {
      await this.discard();
    }
  }

  /** Removes the temporary files. */
  async discard(): Promise<void> {
    await this.#writing.catch(() => {});
    await this.#rows?.close();
    this.#rows = null;
    for (const ending of ['rows', 'tmp']) await rm(`${this.#temporary}.${ending}`, { force: true });
    for (const file of this.#unfinished) file.settled();
  }

  #header(requests: number): Buffer {
    const entries: Record<string, unknown> = {};
    let offset = 0;
    for (let request = 0; request < requests; request++) {
      const rows = this.#requests.filter((owner) => owner === request).length;
      const end = offset + rows * this.#vocabSize * 4;
      const name = requests === 1 ? 'logits' : `logits_${request}`;
      entries[name] = { dtype: 'F32', shape: [rows, this.#vocabSize], data_offsets: [offset, end] };
      offset = end;
    }
    const json = Buffer.from(JSON.stringify(entries), 'utf8');
    const padding = Buffer.alloc((8 - (json.length % 8)) % 8, ' ');
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(json.length + padding.length));
    return Buffer.concat([length, json, padding]);
  }

  async #copyRows(request: number, file: FileHandle): Promise<void> {
    const row = Buffer.alloc(this.#vocabSize * 4);
    for (const [index, owner] of this.#requests.entries()) {
      if (owner !== request) continue;
      await this.#rows!.read(row, 0, row.length, index * row.length);
      await file.writeFile(row);
    }
  }
}
