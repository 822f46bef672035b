import type { Sample } from './record-format.js';
import { mostSamples, recorderRoomBytes, sampleBytes } from './recorder-room.js';

/** One reading; null where nothing was read. */
export interface Reading {
  readonly elapsedNs: bigint;
  readonly residentSetBytes: number | null;
  readonly heldBytes: number | null;
  readonly deviceUsedBytes: number | null;
}

/** Memory samples of one trial in a fixed room: when it is full, two neighbours become one that keeps the larger readings. */
export class SampleRing {
  /** [sample, (elapsed ns, resident, held, device)]; NaN stands for nothing. */
  readonly #values = new Float64Array(recorderRoomBytes / 8);
  #count = 0;
  #skip = 1;
  #seen = 0;

  /** Bytes that hold samples so far. */
  get usedBytes(): number {
    return this.#count * sampleBytes;
  }

  /** Keeps a reading, or, once the room was full, folds it into the one before. */
  push(reading: Reading): void {
    const values = [
      Number(reading.elapsedNs),
      reading.residentSetBytes ?? Number.NaN,
      reading.heldBytes ?? Number.NaN,
      reading.deviceUsedBytes ?? Number.NaN,
    ];
    if (this.#seen++ % this.#skip !== 0 && this.#count > 0) {
      this.#fold(this.#count - 1, values);
      return;
    }
    if (this.#count === mostSamples) {
      this.#halve();
      this.push(reading);
      return;
    }
    this.#values.set(values, 4 * this.#count++);
  }

  samples(): Sample[] {
    return Array.from({ length: this.#count }, (_, index) => {
      const [elapsedNs = 0, resident, held, device] = this.#values.subarray(4 * index, 4 * index + 4);
      return {
        elapsedNs: String(Math.max(0, elapsedNs)),
        residentSetBytes: decimal(resident),
        heldBytes: decimal(held),
        deviceUsedBytes: decimal(device),
      };
    });
  }

  #halve(): void {
    for (let index = 0; index < this.#count; index += 2) {
      this.#values.copyWithin(2 * index, 4 * index, 4 * index + 4);
      this.#fold(index / 2, [...this.#values.subarray(4 * index + 4, 4 * index + 8)]);
    }
    this.#count /= 2;
    this.#skip *= 2;
    this.#seen = 0;
  }

  /** The larger readings stay; the time is that of the first. */
  #fold(index: number, values: readonly number[]): void {
    for (let field = 1; field < 4; field++) {
      const place = 4 * index + field;
      const [old, other] = [this.#values[place]!, values[field]!];
      this.#values[place] = Number.isNaN(old) ? other : Number.isNaN(other) ? old : Math.max(old, other);
    }
  }
}

function decimal(value: number | undefined): string | null {
  return value === undefined || Number.isNaN(value) ? null : String(value);
}
