import { createHash } from 'node:crypto';
import type { MachineRates } from '../acquire/price.js';
import type { Backend } from '../backend/backend.js';
import type { LinearOp, PlacedOp } from '../backend/ops.js';
import { storedBytes } from '../base/stored-type.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { type DeviceBuffer, spanOf, subspan } from '../memory/buffers.js';
import { measureLink } from './link-rates.js';

/** Larger than the caches of a processor; a product over it takes some milliseconds. */
const sampleBytes = 64 * 1024 * 1024;
/** Of a device: a product reads weights at about this share of the rate at which it copies (read and written). */
const deviceReadShare = 0.3;
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
  readonly #activeShare: number;
  readonly #held: DeviceBuffer[] = [];
  readonly #weights: DeviceBuffer;
  readonly #landing: DeviceBuffer;
  readonly #product: readonly PlacedOp[];
  readonly #productBytes: number;
  readonly #compact: readonly PlacedOp[];
  readonly #count: DeviceBuffer;

  constructor(prepared: PreparedModel, backend: Backend, { budgetBytes, activeShare }: MeasureOptions) {
    this.#prepared = prepared;
    this.#backend = backend;
    this.#activeShare = activeShare;
    const { config, matrices } = prepared.description;
    const type = matrices[0]?.type ?? 'f32';
    const outputs = config.hiddenSize;
    const room = Math.min(sampleBytes, Math.floor(budgetBytes / 3));
    const inputs = Math.max(128, Math.floor(room / (outputs * storedBytes[type]) / 128) * 128);
    this.#productBytes = inputs * outputs * storedBytes[type];
    this.#weights = this.#hold(this.#productBytes);
    this.#landing = this.#hold(Math.max(leastLanding, Math.min(reads * largestRead, room / 2)));
    const x = this.#hold(inputs * 4);
    const out = this.#hold(outputs * 4);
    const activation = this.#hold(config.ffnSize * 4);
    this.#count = this.#hold(4 * (1 + config.ffnSize));
    const op: LinearOp = {
      kind: 'linear',
      rows: 1,
      x: spanOf(x),
      xStride: inputs,
      inputBegin: 0,
      inputEnd: inputs,
      outputs,
      matrix: { span: spanOf(this.#weights), type, layout: 'input-major', rowStride: outputs },
      out: spanOf(out),
      outStride: outputs,
      outOffset: 0,
      continues: false,
      bias: null,
      residual: null,
    };
    this.#product = [{ label: 'rate of products', op }];
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
    for (const buffer of [this.#weights, x, activation]) {
      backend.write(spanOf(buffer), new Uint8Array(buffer.byteLength));
    }
  }

  async measure(): Promise<MachineRates> {
    const backend = this.#backend;
    const device =
      backend.hostTier?.measureLink === undefined ? null : await measureLink(this.#prepared, backend);
    const roundTripSeconds = await this.#roundTrip();
    const logitsSeconds = secondsOf(() => this.#digestLogits());
    if (device !== null) {
      const copied = 'deviceBytesPerSecond' in device ? Number(device.deviceBytesPerSecond) : 1e12;
      return {
        denseBytesPerSecond: device.denseBytesPerSecond,
        rowBytesPerSecond: device.rowBytesPerSecond,
        computeBytesPerSecond: copied * deviceReadShare,
        overlapShare: 1,
        roundTripSeconds,
        logitsSeconds,
      };
    }
    await this.#multiply(); // pages come into being
    const dense = await this.#readPieces(0);
    const rows = await this.#readRows();
    let computeSeconds = Infinity;
    for (let pass = 0; pass < passes; pass += 1) {
      computeSeconds = Math.min(computeSeconds, await this.#multiply());
    }
    // The same regions again: both rates are then those of the page cache, which is where overlap is in doubt.
    const again = await this.#readPieces(0);
    const began = process.hrtime.bigint();
    const [product] = await Promise.all([this.#multiply(), this.#readPieces(0)]);
    const both = secondsSince(began);
    const hidden = (computeSeconds + again.seconds - both) / Math.min(computeSeconds, again.seconds);
    return {
      denseBytesPerSecond: dense.bytes / dense.seconds,
      rowBytesPerSecond: rows.bytes / rows.seconds,
      computeBytesPerSecond: this.#productBytes / computeSeconds,
      overlapShare: product > 0 ? Math.max(0, Math.min(1, hidden)) : 0,
      roundTripSeconds,
      logitsSeconds,
    };
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

  async #multiply(): Promise<number> {
    const began = process.hrtime.bigint();
    await this.#backend.submit(this.#product);
    return secondsSince(began);
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
      const count = Math.max(1, Math.min(most, Math.round(this.#activeShare * matrix.inputs)));
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

  /** What is done with a row of logits: read back, looked through, digested. */
  #digestLogits(): void {
    const row = new Float32Array(this.#prepared.description.config.vocabSize);
    if (row.some((logit) => !Number.isFinite(logit))) return;
    createHash('sha256').update(new Uint8Array(row.buffer)).digest();
  }
}

function secondsOf(work: () => void): number {
  work();
  const began = process.hrtime.bigint();
  work();
  return secondsSince(began);
}

function secondsSince(began: bigint): number {
  return Number(process.hrtime.bigint() - began) / 1e9;
}
