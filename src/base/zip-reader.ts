import { RandomAccessReader } from 'yauzl';

/** Bytes that can be read at any place: an open file, or memory. */
export interface ByteSource {
  readonly byteLength: number;
  /** Fills `target` with the bytes from `position` on, all of which lie inside. */
  read(position: number, target: Uint8Array): Promise<unknown>;
}

/** Lets yauzl read from a source that is already open, and never beyond its end. */
export class ZipReader extends RandomAccessReader {
  /** Rejects where yauzl's own parsing threw, which would otherwise be nobody's to catch. */
  readonly fault: Promise<never>;
  readonly #source: ByteSource;
  #reject!: (cause: unknown) => void;

  constructor(source: ByteSource) {
    super();
    this.#source = source;
    this.fault = new Promise((_, reject) => {
      this.#reject = reject;
    });
    this.fault.catch(() => {});
  }

  override read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
    callback: (cause: Error | null) => void,
  ): void {
    const inside = position >= 0 && position + length <= this.#source.byteLength;
    const reading = inside
      ? this.#source.read(position, buffer.subarray(offset, offset + length))
      : Promise.reject(new Error(`bytes ${position} to ${position + length} lie outside the file`));
    reading
      .then(
        () => callback(null),
        (cause: unknown) => callback(cause as Error),
      )
      .catch(this.#reject);
  }

  override close(callback: (cause: Error | null) => void): void {
    callback(null);
  }
}

/** A source over bytes in memory. */
export function bytesSource(bytes: Uint8Array): ByteSource {
  return {
    byteLength: bytes.byteLength,
    read: async (position, target) => target.set(bytes.subarray(position, position + target.byteLength)),
  };
}
