import type { MachineRates } from '../acquire/price.js';
import type { Backend } from '../backend/backend.js';
import type { PlacedOp } from '../backend/ops.js';
import { storedBytes } from '../base/stored-type.js';
import { lowBitFormat } from '../checkpoint/low-bit.js';
import { largestLowBitInputs, lowBitLayout, roundedInputLayout } from '../checkpoint/low-bit-layout.js';
import { defaultLowBit } from '../checkpoint/low-bit-plan.js';
import { isSparse } from '../checkpoint/model-config.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { type DeviceBuffer, spanOf, subspan } from '../memory/buffers.js';
import { measureLink } from './link-rates.js';
import {
  certifyOps,
  type MeasuredOps,
  type MeasuredShape,
  type MeasureRoom,
  productOps,
  quantisedOps,
  smallOps,
} from './measured-ops.js';
import { greedyOfFinite } from './sampler.js';

/** Larger than the caches of a processor, or of a device; products over it take some milliseconds. */
const sampleBytes = 64 * 1024 * 1024;
const deviceSampleBytes = 256 * 1024 * 1024;
/** Products of a submission to a device: as many as hide what starting one costs. */
const deviceProducts = 16;
/** Small ops of a submission; the difference to one tells what each takes. */
const smallCount = 64;
const largestRead = 4 * 1024 * 1024;
const reads = 4;
const passes = 3;
/** Holds a row of any model. */
const leastLanding = 64 * 1024;

/** What is measured of a run that is about to be planned. */
export interface MeasureOptions {
  /** Measuring holds at most half of it, and gives all back. */
  readonly budgetBytes: number;
  /** Share of neurons that are active: rows are read in calls of as many. */
  readonly activeShare: number;
  /** Measure products with quantised weights, too. */
  readonly quantised?: boolean;
}

/**
 * Measures what prices are made of, with the backend that is to run: a product of one row over more bytes than caches
 * hold, reads of the prepared file in long pieces and in as many rows as a layer has active, both at once, and an active
 * set's way to the host. Some tens of milliseconds; a file that is not in the page cache is read at the rate of its disk.
 */
export async function measureRates(
  prepared: PreparedModel,
  backend: Backend,
  options: MeasureOptions,
): Promise<MachineRates> {
  const bench = new Bench(prepared, backend, options);
  try {
    return await bench.measure();
  } finally {
    bench.release();
  }
}

class Bench {
  readonly #prepared: PreparedModel;
  readonly #backend: Backend;
  readonly #options: MeasureOptions;
  readonly #held: DeviceBuffer[] = [];
  readonly #landing: DeviceBuffer;
  readonly #shape: MeasuredShape;
  readonly #room: MeasureRoom;
  readonly #product: MeasuredOps;
  readonly #compact: readonly PlacedOp[];
  readonly #count: DeviceBuffer;

  constructor(prepared: PreparedModel, backend: Backend, options: MeasureOptions) {
    this.#prepared = prepared;
    this.#backend = backend;
    this.#options = options;
    const { config, matrices } = prepared.description;
    const most = backend.hostTier === undefined ? sampleBytes : deviceSampleBytes;
    const room = Math.min(most, Math.floor(options.budgetBytes / 3));
    const type = matrices[0]?.type ?? 'f32';
    const inputs = config.hiddenSize;
    const fitting = Math.floor(room / (inputs * storedBytes[type]) / 16) * 16;
    const outputs = Math.max(16, Math.min(config.ffnSize, fitting));
    this.#shape = { inputs, outputs, type };
    const leastBytes = lowBitLayout(lowBitFormat(defaultLowBit), inputs, outputs, 0).byteLength;
    const weights = this.#hold(Math.max(inputs * outputs * storedBytes[type], leastBytes, room));
    this.#landing = this.#hold(Math.max(leastLanding, Math.min(reads * largestRead, room / 2)));
    const x = this.#hold(Math.max(inputs, outputs) * 4);
    const out = this.#hold(Math.max(inputs, outputs) * 4);
    const rounded = this.#hold(roundedInputLayout(1, inputs, 0).byteLength);
    this.#room = { weights: spanOf(weights), x: spanOf(x), out: spanOf(out), rounded: spanOf(rounded) };
    const square = { inputs, outputs: Math.min(inputs, outputs), type };
    const second = { inputs: outputs, outputs: square.outputs, type };
    const layer = [square, square, square, square, this.#shape, second];
    this.#product = productOps(this.#room, layer, this.#fewest);
    const activation = this.#hold(config.ffnSize * 4);
    this.#count = this.#hold(4 * (1 + config.ffnSize));
    this.#compact = [
      {
        label: 'round trip',
        op: {
          kind: 'compact',
          rows: 1,
          width: config.ffnSize,
          x: spanOf(activation),
          active: spanOf(this.#count),
        },
      },
    ];
    for (const buffer of [weights, x, rounded, activation]) {
      backend.write(spanOf(buffer), new Uint8Array(buffer.byteLength));
    }
  }

  get #fewest(): number {
    return this.#backend.hostTier === undefined ? 1 : deviceProducts;
  }

  async measure(): Promise<MachineRates> {
    const backend = this.#backend;
    const device =
      backend.hostTier?.measureLink === undefined ? null : await measureLink(this.#prepared, backend);
    const roundTripSeconds = await this.#roundTrip();
    // Where rows of logits can wait on a device, nobody waits for them.
    const logitsSeconds = backend.hostTier?.readLater === undefined ? this.#lookAtLogits() : 0;
    const inMemory = await this.#computing(roundTripSeconds);
    if (device !== null) {
      const { denseBytesPerSecond, rowBytesPerSecond } = device;
      const link = { denseBytesPerSecond, rowBytesPerSecond, overlapShare: 1 };
      return { ...link, ...inMemory, roundTripSeconds, logitsSeconds };
    }
    const dense = await this.#readPieces(0);
    const rows = await this.#readRows();
    // The same regions again: both rates are then those of the page cache, which is where overlap is in doubt.
    const again = await this.#readPieces(0);
    const computeSeconds = this.#product.byteLength / inMemory.computeBytesPerSecond;
    const began = process.hrtime.bigint();
    await Promise.all([backend.submit(this.#product.ops), this.#readPieces(0)]);
    const both = secondsSince(began);
    const hidden = (computeSeconds + again.seconds - both) / Math.min(computeSeconds, again.seconds);
    return {
      denseBytesPerSecond: dense.bytes / dense.seconds,
      rowBytesPerSecond: rows.bytes / rows.seconds,
      ...inMemory,
      overlapShare: Math.max(0, Math.min(1, hidden)),
      roundTripSeconds,
      logitsSeconds,
    };
  }

  /** Rates of what is read from where it is computed with. */
  async #computing(roundTripSeconds: number) {
    const { config, matrices } = this.#prepared.description;
    const rate = async ({ ops, byteLength }: MeasuredOps) => byteLength / (await this.#leastSeconds(ops));
    const computeBytesPerSecond = await rate(this.#product);
    const certifies = isSparse(config.activation) && config.hiddenSize <= largestLowBitInputs;
    const certifyBytesPerSecond = certifies
      ? await rate(certifyOps(this.#room, this.#shape, this.#fewest))
      : computeBytesPerSecond;
    const width = config.hiddenSize;
    const many = await this.#leastSeconds(smallOps(this.#room, smallCount, width));
    const smallOpSeconds = Math.max(0, many - roundTripSeconds / 2) / smallCount;
    const common = { computeBytesPerSecond, certifyBytesPerSecond, smallOpSeconds };
    if (this.#options.quantised !== true || matrices.length === 0) return common;
    const q8 = await rate(quantisedOps(this.#room, this.#shape, 'q8', this.#fewest));
    const q4 = await rate(quantisedOps(this.#room, this.#shape, 'q4', this.#fewest));
    return { ...common, quantisedBytesPerSecond: { q8, q4 } };
  }

  release(): void {
    for (const buffer of this.#held.splice(0)) this.#backend.release(buffer);
  }

  #hold(byteLength: number): DeviceBuffer {
    const request = {
      label: 'rates',
      cause: 'workspace',
      byteLength: Math.floor(byteLength / 4) * 4,
    } as const;
    this.#held.push(this.#backend.allocate(request));
    return this.#held.at(-1)!;
  }

  /** The shortest of some runs behind those that make pages come into being and a device record the ops. */
  async #leastSeconds(ops: readonly PlacedOp[]): Promise<number> {
    const warmUps = this.#backend.hostTier === undefined ? 1 : 2;
    let least = Infinity;
    for (let pass = 0; pass < warmUps + passes; pass += 1) {
      const began = process.hrtime.bigint();
      await this.#backend.submit(ops);
      if (pass >= warmUps) least = Math.min(least, secondsSince(began));
    }
    return least;
  }

  async #roundTrip(): Promise<number> {
    const times: number[] = [];
    for (let turn = 0; turn < 9; turn += 1) {
      const began = process.hrtime.bigint();
      await this.#backend.submit(this.#compact);
      await this.#backend.read(subspan(spanOf(this.#count), 0, 4));
      times.push(secondsSince(began));
    }
    return times.sort((a, b) => a - b)[4]!;
  }

  /** Long pieces, spread over the file. */
  async #readPieces(first: number) {
    const { weightsFile } = this.#prepared;
    const size = Math.min(largestRead, Math.floor(this.#landing.byteLength / reads), weightsFile.byteLength);
    const step = Math.floor((weightsFile.byteLength - size) / reads / 4096) * 4096;
    const regions = Array.from({ length: reads }, (_, index) => ({
      file: weightsFile,
      position: first + index * step,
      target: subspan(spanOf(this.#landing), index * size, size),
    }));
    return this.#transfer(regions);
  }

  /** As many rows of two layers as are active in a token, at uneven distances. */
  async #readRows() {
    const { description, weightsFile } = this.#prepared;
    const second = description.matrices.filter(({ role }) => role === 'second');
    let [bytes, seconds] = [0, 0];
    for (const matrix of [second[0], second[Math.floor(second.length / 2)]]) {
      if (matrix === undefined) continue;
      const { byteOffset, byteLength } = this.#prepared.tensor(matrix.id);
      const rowBytes = byteLength / matrix.inputs;
      const most = Math.floor(this.#landing.byteLength / rowBytes);
      const count = Math.max(1, Math.min(most, Math.round(this.#options.activeShare * matrix.inputs)));
      const regions = Array.from({ length: count }, (_, index) => ({
        file: weightsFile,
        position:
          byteOffset + Math.floor(((index + ((index * 37) % 64) / 64) / count) * matrix.inputs) * rowBytes,
        target: subspan(spanOf(this.#landing), index * rowBytes, rowBytes),
      }));
      const read = await this.#transfer(regions);
      bytes += read.bytes;
      seconds += read.seconds;
    }
    return seconds > 0 ? { bytes, seconds } : { bytes: 1, seconds: 1e-9 };
  }

  async #transfer(regions: Parameters<Backend['transfer']>[0]) {
    const began = process.hrtime.bigint();
    const { requestedBytes } = await this.#backend.transfer(regions);
    return { bytes: requestedBytes, seconds: secondsSince(began) };
  }

  /** Seconds that a row of logits holds up the next pass: it is looked through; its digest is computed beside that pass. */
  #lookAtLogits(): number {
    const row = new Float32Array(this.#prepared.description.config.vocabSize);
    let least = Infinity;
    for (let pass = 0; pass < 5; pass += 1) {
      const began = process.hrtime.bigint();
      greedyOfFinite(row, 0);
      least = Math.min(least, secondsSince(began));
    }
    return least;
  }
}

function secondsSince(began: bigint): number {
  return Number(process.hrtime.bigint() - began) / 1e9;
}
