import { DefectError } from '../../base/errors.js';
import { barrierBytes, mostChainBytes, stepBytes } from './chain.js';
import { check, type DriverLibrary } from './driver.js';
import type { Launch } from './launch.js';
import { encodeParameters } from './parameters.js';

/** Graphs that are kept at once, with their steps on the device. */
export const mostGraphs = 16;
/** A place for each graph, and one for what is launched directly. */
const chainSlots = mostGraphs + 1;
/** Device memory for them; made with the context and measured with it. */
export const chainRoomBytes = chainSlots * mostChainBytes;
const directSlot = 0;

/** Device memory for the steps of chains. Copies are in the order of the stream, so that a slot can be written again at once. */
export class ChainRoom {
  readonly #driver: DriverLibrary;
  readonly #stream: bigint;
  readonly #address: number;
  readonly #free: number[] = Array.from({ length: chainSlots - 1 }, (_, index) => chainSlots - 1 - index);
  readonly #bytes = new DataView(new ArrayBuffer(mostChainBytes));

  constructor(driver: DriverLibrary, stream: bigint, address: number) {
    this.#driver = driver;
    this.#stream = stream;
    this.#address = address;
  }

  /** A slot that is kept until it is given back. There is one for every graph that is kept. */
  take(): number {
    const slot = this.#free.pop();
    if (slot === undefined)
      throw new DefectError(`Cannot keep the steps of another graph: all ${chainSlots} places are taken`);
    return slot;
  }

  give(slot: number): void {
    this.#free.push(slot);
  }

  /** Brings the steps of all chains to the device; returns the launches with their places. */
  place(launches: readonly Launch[], slot = directSlot): readonly Launch[] {
    if (!launches.some(({ chain }) => chain !== undefined)) return launches;
    const base = this.#address + slot * mostChainBytes;
    let at = 0;
    const placed = launches.map((one) => {
      if (one.chain === undefined) return one;
      const barrier = at;
      new Uint8Array(this.#bytes.buffer, barrier, barrierBytes).fill(0);
      at += barrierBytes;
      const steps = at;
      for (const { header, structure, values } of one.chain) {
        encodeParameters(
          structure,
          values,
          this.#bytes,
          encodeParameters('StepHeader', header, this.#bytes, at),
        );
        at += stepBytes;
      }
      return { ...one, values: { ...one.values, steps: base + steps, barrier: base + barrier } };
    });
    const code = this.#driver.cuMemcpyHtoDAsync_v2(
      base,
      new Uint8Array(this.#bytes.buffer, 0, at),
      at,
      this.#stream,
    );
    check(this.#driver, 'cuMemcpyHtoDAsync', code, 'bring the steps of a chain to the GPU');
    return placed;
  }
}
