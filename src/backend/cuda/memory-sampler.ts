import type { SampledUse } from '../backend.js';

/** A reading of what the process uses of a device, and how it was told from what others use. */
export interface UseReading {
  readonly bytes: number;
  readonly source: 'process' | 'baseline';
}

/** Reads beside the event loop; null where the system cannot tell. */
export type ReadUse = () => Promise<UseReading | null>;

/** Between two samples; a call of the monitoring library takes some hundredths of a millisecond. */
export const sampleIntervalMs = 5;

/** Backends that this process has open, by device: with two, no sample is that of one. */
const openOn = new Map<string, number>();

/**
 * Samples what the process uses of a device, as the system counts it, while a backend is open. A sample above the limit is
 * told once. Samples are taken on a thread of their own; a busy event loop makes the gaps between them longer, and the
 * longest is part of the record.
 */
export class MemorySampler {
  readonly #device: string;
  readonly #read: ReadUse;
  readonly #clock: () => bigint;
  #limitBytes = Infinity;
  #onExceeded: (bytes: number, source: UseReading['source']) => void = () => {};
  #timer: NodeJS.Timeout | null = null;
  #sampling: Promise<unknown> = Promise.resolve();
  #running = false;
  #released = false;
  #source: SampledUse['source'] | null = null;
  #samples = 0;
  #currentBytes = 0;
  #peakBytes = 0;
  #lastNs: bigint | null = null;
  #longestGapNs = 0n;

  constructor(device: string, read: ReadUse, clock: () => bigint = process.hrtime.bigint) {
    this.#device = device;
    this.#read = read;
    this.#clock = clock;
    openOn.set(device, (openOn.get(device) ?? 0) + 1);
  }

  /** Null before the first sample, and where the system cannot tell. */
  get use(): SampledUse | null {
    if (this.#source === null) return null;
    return {
      source: this.#source,
      currentBytes: this.#currentBytes,
      peakBytes: this.#peakBytes,
      samples: this.#samples,
      intervalMs: sampleIntervalMs,
      longestGapMs: Number(this.#longestGapNs) / 1e6,
    };
  }

  start(limitBytes: number, onExceeded: (bytes: number, source: UseReading['source']) => void): void {
    this.#limitBytes = limitBytes;
    this.#onExceeded = onExceeded;
    if (this.#running) return;
    this.#running = true;
    this.#next();
  }

  /** Takes one more sample, so that the end of a run is seen, too. */
  async sample(): Promise<void> {
    await this.#queue();
  }

  async stop(): Promise<void> {
    this.#running = false;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    await this.#sampling;
    if (this.#released) return;
    this.#released = true;
    openOn.set(this.#device, openOn.get(this.#device)! - 1);
  }

  #next(): void {
    if (!this.#running) return;
    void this.#queue().then((told) => {
      if (!this.#running || !told) return;
      // Samples that are of no single backend are only kept up, not hurried.
      const pause = this.#source === 'shared' ? 20 * sampleIntervalMs : sampleIntervalMs;
      this.#timer = setTimeout(() => this.#next(), pause);
      this.#timer.unref();
    });
  }

  /** One reading at a time: they share the room that the library writes to. */
  #queue(): Promise<boolean> {
    const taken = this.#sampling.then(() => this.#take());
    this.#sampling = taken;
    return taken;
  }

  /** False where the system cannot tell, now or ever. */
  async #take(): Promise<boolean> {
    const reading = await this.#read().catch(() => null);
    if (reading === null) return false;
    const now = this.#clock();
    if (this.#lastNs !== null && now - this.#lastNs > this.#longestGapNs) {
      this.#longestGapNs = now - this.#lastNs;
    }
    this.#lastNs = now;
    this.#samples += 1;
    this.#currentBytes = reading.bytes;
    this.#peakBytes = Math.max(this.#peakBytes, reading.bytes);
    if (this.#source !== 'shared') this.#source = reading.source;
    if ((openOn.get(this.#device) ?? 0) > 1) this.#source = 'shared';
    if (reading.bytes > this.#limitBytes && this.#source !== 'shared') {
      this.#limitBytes = Infinity;
      this.#onExceeded(reading.bytes, reading.source);
    }
    return true;
  }
}
