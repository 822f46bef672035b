import { createWriteStream, openSync, type WriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { storageError } from '../base/atomic-file.js';
import { type TraceSink, traceLine } from '../memory/trace.js';

/** `--trace FILE`: one JSON object a line, appended as moves happen, so that a killed run leaves what it did. */
export class TraceFile {
  readonly #path: string;
  readonly #stream: WriteStream;
  #failure: Error | null = null;
  #closed = false;

  /** @throws SetupError where the file cannot be opened */
  constructor(path: string) {
    this.#path = path;
    this.#stream = createWriteStream(path, { fd: openForWriting(path) });
    this.#stream.on('error', (error) => {
      this.#failure ??= error;
    });
  }

  readonly sink: TraceSink = (record) => {
    if (this.#failure === null) this.#stream.write(traceLine(record));
  };

  /**
   * Writes what is under way. Idempotent.
   * @throws SetupError where the file could not be written
   */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#stream.end();
    await finished(this.#stream).catch((error: Error) => {
      this.#failure ??= error;
    });
    if (this.#failure !== null) throw storageError(this.#failure, 'write', this.#path, 0);
  }
}

function openForWriting(path: string): number {
  try {
    return openSync(path, 'w');
  } catch (error) {
    throw storageError(error, 'write', path, 0);
  }
}
