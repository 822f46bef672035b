import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { storageError } from '../base/atomic-file.js';

/** Rows of logits on disk between two runs that do not fit memory together; the file goes with `close`. */
export class LogitsSpool {
  readonly #folder: string;
  readonly #descriptor: number;
  #written = 0;
  #read = 0;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#descriptor = openSync(join(folder, 'logits'), 'wx+');
  }

  static async open(): Promise<LogitsSpool> {
    return new LogitsSpool(await mkdtemp(join(tmpdir(), 'waybill-logits-')));
  }

  /** @throws SetupError `disk-full`, `not-writable` */
  write({ buffer, byteOffset, byteLength }: Float32Array): void {
    const bytes = new Uint8Array(buffer, byteOffset, byteLength);
    try {
      for (let done = 0; done < byteLength; ) {
        done += writeSync(this.#descriptor, bytes, done, byteLength - done, this.#written + done);
      }
    } catch (error) {
      throw storageError(error, 'write', this.#folder, byteLength);
    }
    this.#written += byteLength;
  }

  /** The next row, in the order of writing, of as many values; null behind the last. */
  read(length: number): Float32Array | null {
    const row = new Float32Array(length);
    if (this.#read + row.byteLength > this.#written) return null;
    readSync(this.#descriptor, row, 0, row.byteLength, this.#read);
    this.#read += row.byteLength;
    return row;
  }

  async close(): Promise<void> {
    closeSync(this.#descriptor);
    await rm(this.#folder, { recursive: true, force: true });
  }
}
