import type { LandedBytes } from '../backend.js';
import { BouncePool } from './bounce-pool.js';
import type { Completion } from './completion.js';
import { check, type DriverLibrary } from './driver.js';
import type { PinnedMemory } from './pinned-memory.js';

/** Read-backs are logits and active sets; larger ones go in parts. */
const partBytes = 1024 * 1024;
const partCount = 64;
/** More are not left in page-locked memory: other read-backs need it. */
const mostWaitingBytes = (partBytes * partCount) / 4;
/** Page-locked bytes that read-backs may take. */
export const readBackBytes = partBytes * partCount;

/** Copies from the device to the host, in the order of the computing stream, by way of page-locked memory. */
export class ReadBacks {
  readonly #driver: DriverLibrary;
  readonly #enter: () => void;
  readonly #completion: Completion;
  readonly #stream: bigint;
  readonly #pool: BouncePool;

  constructor(driver: DriverLibrary, enter: () => void, completion: Completion, stream: bigint) {
    this.#driver = driver;
    this.#enter = enter;
    this.#completion = completion;
    this.#stream = stream;
    this.#pool = new BouncePool(driver, enter, partBytes, partCount);
  }

  get pinnedBytes(): number {
    return this.#pool.pinnedBytes;
  }

  /** Copies each part as it lands: any number of bytes. */
  async read(address: number, byteLength: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(byteLength);
    await this.#parts(address, byteLength, (memory, begin, length) => {
      bytes.set(memory.bytes.subarray(0, length), begin);
      this.#pool.give(memory);
    });
    return bytes;
  }

  /** Resolves when the bytes have come to page-locked memory, which they keep until they are taken. */
  async readLater(address: number, byteLength: number): Promise<LandedBytes> {
    if (byteLength > mostWaitingBytes) {
      const bytes = await this.read(address, byteLength);
      return { take: () => bytes };
    }
    const landed: { memory: PinnedMemory; begin: number; length: number }[] = [];
    try {
      await this.#parts(address, byteLength, (memory, begin, length) => {
        landed.push({ memory, begin, length });
      });
    } catch (error) {
      for (const { memory } of landed) this.#pool.give(memory);
      throw error;
    }
    return {
      take: () => {
        const bytes = new Uint8Array(byteLength);
        for (const { memory, begin, length } of landed.splice(0)) {
          bytes.set(memory.bytes.subarray(0, length), begin);
          this.#pool.give(memory);
        }
        return bytes;
      },
    };
  }

  close(): void {
    this.#pool.close();
  }

  /** `onLanded` is given the memory of each part. Ends when all parts have. */
  async #parts(
    address: number,
    byteLength: number,
    onLanded: (memory: PinnedMemory, begin: number, length: number) => void,
  ): Promise<void> {
    const parts: Promise<void>[] = [];
    // The first parts are enqueued at once, before a later submission can change the bytes.
    for (let begin = 0; begin < byteLength; begin += partBytes) {
      const length = Math.min(partBytes, byteLength - begin);
      try {
        const memory = this.#pool.tryTake() ?? (await this.#pool.take());
        parts.push(this.#part(address + begin, length, memory).then(() => onLanded(memory, begin, length)));
      } catch (error) {
        parts.push(Promise.reject(error)); // once those on their way have landed
        break;
      }
    }
    const failed = (await Promise.allSettled(parts)).find((part) => part.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  async #part(address: number, byteLength: number, memory: PinnedMemory): Promise<void> {
    try {
      this.#enter();
      const code = this.#driver.cuMemcpyDtoHAsync_v2(memory.hostAddress, address, byteLength, this.#stream);
      check(this.#driver, 'cuMemcpyDtoHAsync', code, 'read from the GPU');
      await this.#completion.after(this.#stream);
    } catch (error) {
      this.#pool.give(memory);
      throw error;
    }
  }
}
