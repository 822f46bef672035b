import { createWriteStream, type WriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { storageError } from '../base/atomic-file.js';
import { type TraceSink, traceLine } from '../memory/trace.js';

/** `--trace FILE`: one JSON object a line, appended as moves happen, so that a killed run leaves what it did. */
export class TraceFile {
  readonly #path: string;
  readonly #stream: WriteStream;
  #failure: Error | null = null;

  constructor(path: string) {
    this.#path = path;
    this.#stream = createWriteStream(path, { flags: 'w' });
    this.#stream.on('error', (error) => {
      this.#failure = error;
    });
  }

  readonly sink: TraceSink = (record) => {
    if (this.#failure === null) this.#stream.write(traceLine(record));
  };

  /** @throws SetupError where the file could not be written */
  async close(): Promise<void> {
    this.#stream.end();
    await finished(this.#stream).catch((error: Error) => {
      this.#failure ??= error;
    });
    if (this.#failure !== null) throw storageError(this.#failure, 'write', this.#path, 0);
  }
}
