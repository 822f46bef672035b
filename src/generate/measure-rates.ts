import type { StreamedMatrix } from '../acquire/bound-matrix.js';
import { WeightMover } from '../acquire/executor.js';
import { smallestPieceBytes, storedRowBytes, storedRows } from '../acquire/pieces.js';
import type { MachineRates } from '../acquire/price.js';
import type { Backend, DeviceRates } from '../backend/backend.js';
import { blockInputs, type PlacedOp } from '../backend/ops.js';
import { storedBytes } from '../base/stored-type.js';
import { lowBitFormat } from '../checkpoint/low-bit.js';
import { largestLowBitInputs, lowBitLayout, roundedInputLayout } from '../checkpoint/low-bit-layout.js';
import { defaultLowBit } from '../checkpoint/low-bit-plan.js';
import { isSparse } from '../checkpoint/model-config.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { type DeviceBuffer, type Span, spanOf, subspan } from '../memory/buffers.js';
import { type KvShape, kvBytes } from '../memory/kv-cache.js';
import { Ledger } from '../memory/ledger.js';
import { layerRates, settled } from './layer-rates.js';
import { linkRowBytes } from './link-rates.js';
import { layerBytes } from './measured-layers.js';
import { certifyOps, type MeasuredOps, quantisedOps } from './measured-ops.js';
import { type RowBench, rowRates } from './row-rates.js';
import { greedyOfFinite } from './sampler.js';
import { leastOf, piecesOf, type StreamBench, stream, streamRates } from './stream-rates.js';

const mebibyte = 1024 * 1024;
/** Larger than the caches of a processor, or of a device; products over it take some milliseconds. */
const sampleBytes = 64 * mebibyte;
const deviceSampleBytes = 256 * mebibyte;
/** Layers of a submission to a device: as many as hide what starting one costs. */
const deviceLayers = 12;
/** Products of a submission to a device, where no layers are measured. */
const deviceProducts = 16;
/** As pieces of streamed matrices are at most. */
const pieceBytes = 8 * mebibyte;
const devicePieceBytes = 4 * mebibyte;
const stagingSlots = 4;
const streamedPieces = 16;
/** Few enough for a disk that is slow. */
const readPieces = 8;
/** Of one matrix, in host memory that a device can reach. */
const mirrorBytes = 32 * mebibyte;
const passes = 3;
/** Holds a row of any model. */
const leastLanding = 64 * 1024;
/** Positions in front of a token where nothing else is said; what attention reads of them is part of its price. */
export const usualContext = 256;

/** What is measured of a run that is about to be planned. */
export interface MeasureOptions {
  /** Measuring holds at most half of it, and gives all back. */
  readonly budgetBytes: number;
  /** Share of neurons that are active: rows are read in calls of as many. */
  readonly activeShare: number;
  /** Measure products with quantised weights, too. */
  readonly quantised?: boolean;
  /** Positions in front of the token that is priced, as far as the model and the budget go. */
  readonly context?: number;
  readonly kvType?: KvShape['type'];
}

/**
 * Measures what prices are made of, with the backend that is to run: decode layers as the model emits them, streams of the
 * prepared file in long pieces and in short ones, rows as many as a layer has active, and an active set's way to the host.
 * Some tenths of a second; a file that is not in the page cache is read at the rate of its disk.
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
  readonly #weights: Span;
  readonly #landing: Span;
  readonly #x: Span;
  readonly #out: Span;
  readonly #mover: WeightMover;
  readonly #compact: readonly PlacedOp[];
  readonly #count: Span;

  constructor(prepared: PreparedModel, backend: Backend, options: MeasureOptions) {
    this.#prepared = prepared;
    this.#backend = backend;
    this.#options = options;
    this.#mover = new WeightMover(backend, prepared.weightsFile, new Ledger());
    const { description } = prepared;
    const most = backend.hostTier === undefined ? sampleBytes : deviceSampleBytes;
    const room = Math.min(most, Math.floor(options.budgetBytes / 4));
    this.#weights = this.#hold(Math.max(room, layerBytes(description).least, this.#leastCopy));
    const landing = Math.min(stagingSlots * pieceBytes, room / 2);
    this.#landing = this.#hold(Math.max(leastLanding, landing, layerBytes(description).least));
    const widest = Math.max(...description.matrices.map(({ inputs, outputs }) => Math.max(inputs, outputs)));
    this.#x = this.#hold(widest * 4);
    this.#out = this.#hold(widest * 4);
    const width = description.config.ffnSize;
    const activation = this.#hold(4 * width);
    this.#count = this.#hold(4 * (1 + width));
    const op = { kind: 'compact', rows: 1, width, x: activation, active: this.#count } as const;
    this.#compact = [{ label: 'round trip', op }];
    if (backend.hostTier !== undefined) return;
    // Pages come into being where something is written.
    for (const span of [this.#weights, this.#landing]) backend.write(span, new Uint8Array(span.byteLength));
  }

  async measure(): Promise<MachineRates> {
    const backend = this.#backend;
    const { hostTier } = backend;
    const device = (await hostTier?.measureLink?.(linkRowBytes(this.#prepared))) ?? null;
    const trips = await this.#roundTrip();
    const layers = await this.#layers();
    const products = await this.#products(layers.computeBytesPerSecond);
    const moving = await this.#moving(device, layers.computeBytesPerSecond);
    // Where rows of logits can wait on a device, nobody waits for them.
    const logitsSeconds = hostTier?.readLater === undefined ? this.#lookAtLogits() : 0;
    return { ...layers, ...products, ...moving, ...trips, logitsSeconds };
  }

  release(): void {
    for (const buffer of this.#held.splice(0)) this.#backend.release(buffer);
  }

  /** Room for one copy of the default format of as many outputs as a block has. */
  get #leastCopy(): number {
    const { hiddenSize } = this.#prepared.description.config;
    return lowBitLayout(lowBitFormat(defaultLowBit), hiddenSize, 16, 0).byteLength;
  }

  #hold(byteLength: number): Span {
    const request = {
      label: 'rates',
      cause: 'workspace',
      byteLength: Math.floor(byteLength / 4) * 4,
    } as const;
    this.#held.push(this.#backend.allocate(request));
    return spanOf(this.#held.at(-1)!);
  }

  #layers() {
    const { description } = this.#prepared;
    const { config } = description;
    const { budgetBytes, activeShare, context = usualContext, kvType = 'f16' } = this.#options;
    const most = this.#backend.hostTier === undefined ? 1 : deviceLayers;
    const wanted = Math.max(
      most,
      Math.ceil(this.#weights.byteLength / Math.max(1, layerBytes(description).whole)),
    );
    const layers = Math.min(config.layers, wanted);
    const { kvHeads, headDim } = config;
    const shape = { layers, slots: 1, kvHeads, headDim, capacity: 1, type: kvType } as const;
    const affordable = Math.floor(budgetBytes / 16 / kvBytes(shape));
    return layerRates({
      backend: this.#backend,
      description,
      weights: this.#weights,
      layers,
      context: Math.max(0, Math.min(context, config.maxPositions - 1, affordable - 1)),
      kvType,
      activeShare,
      time: (lists) => this.#leastSeconds(lists),
    });
  }

  /** Rates of low-bit copies and of quantised weights. */
  async #products(computeBytesPerSecond: number) {
    const { config, matrices } = this.#prepared.description;
    const { hiddenSize, ffnSize } = config;
    const type = matrices[0]?.type ?? 'f32';
    const rowBytes = hiddenSize * Math.max(storedBytes[type], 2);
    const fitting = Math.floor(this.#weights.byteLength / rowBytes / 16) * 16;
    const shape = { inputs: hiddenSize, outputs: Math.max(16, Math.min(ffnSize, fitting)), type };
    const room = { weights: this.#weights, x: this.#x, out: this.#out, rounded: this.#rounded(hiddenSize) };
    const fewest = this.#backend.hostTier === undefined ? 1 : deviceProducts;
    const rate = async ({ ops, byteLength }: MeasuredOps) => {
      const [seconds] = await this.#leastSeconds([ops]);
      return byteLength / seconds!;
    };
    const certifies = isSparse(config.activation) && hiddenSize <= largestLowBitInputs;
    const certifyBytesPerSecond = certifies
      ? await rate(certifyOps(room, shape, fewest))
      : computeBytesPerSecond;
    if (this.#options.quantised !== true || matrices.length === 0) return { certifyBytesPerSecond };
    const q8 = await rate(quantisedOps(room, shape, 'q8', fewest));
    const q4 = await rate(quantisedOps(room, shape, 'q4', fewest));
    return { certifyBytesPerSecond, quantisedBytesPerSecond: { q8, q4 } };
  }

  #rounded(inputs: number): Span {
    const span = this.#hold(roundedInputLayout(1, inputs, 0).byteLength);
    this.#backend.write(span, new Uint8Array(span.byteLength));
    return span;
  }

  /** What the link takes: that of a device with what is mirrored, else reads of the prepared file. */
  async #moving(device: DeviceRates | null, computeBytesPerSecond: number) {
    const second = this.#prepared.description.matrices.filter(({ role }) => role === 'second');
    const [first, middle, last] = [0, second.length >> 1, second.length - 1].map((index) =>
      this.#stored(second[index]!),
    ) as [Stored, Stored, Stored];
    const mirrored = device === null ? null : await this.#mirror(first);
    try {
      return mirrored === null
        ? await this.#fromFile([first, middle, last], computeBytesPerSecond)
        : await this.#fromMirror(first, device!, mirrored.byteLength);
    } finally {
      if (mirrored !== null) this.#backend.release(mirrored);
    }
  }

  async #fromFile([first, middle, last]: readonly [Stored, Stored, Stored], computeBytesPerSecond: number) {
    const bench = this.#streamBench;
    const { size, slots } = this.#pieces(pieceBytes, last);
    const pieces = piecesOf([last, middle, first], size, readPieces);
    const cold = await stream(bench, pieces, slots, size, false);
    const rows = await rowRates([this.#rows(first), this.#rows(middle)], this.#options.activeShare);
    const small = await streamRates(bench, last);
    // Again, now from the page cache: overlap is in doubt where reading takes a processor.
    const warm = await leastOf(() => stream(bench, pieces, slots, size, false));
    const both = await leastOf(() => stream(bench, pieces, slots, size, true));
    // The first piece is read, and the last one computed with, beside nothing.
    const computeSeconds = warm.bytes / computeBytesPerSecond;
    const beside = Math.min(computeSeconds, warm.seconds) * (1 - 1 / Math.max(2, pieces.length));
    const hidden = (computeSeconds + warm.seconds - both.seconds) / beside;
    const overlapShare = Math.max(0, Math.min(1, hidden));
    // Reading and computing take the same processors as the host does: what is left of small pieces is a piece's own.
    const [read, computed] = [(small.bytes * warm.seconds) / warm.bytes, small.bytes / computeBytesPerSecond];
    const alone = small.pieceSeconds - read - computed + overlapShare * Math.min(read, computed);
    const pieceGapSeconds = Math.max(0, alone);
    const gaps = Math.min(pieceGapSeconds * pieces.length, cold.seconds / 2);
    return {
      denseBytesPerSecond: cold.bytes / (cold.seconds - gaps),
      ...rows,
      wakeSeconds: small.wakeSeconds,
      pieceSeconds: 0,
      pieceGapSeconds,
      overlapShare,
    };
  }

  /** As they come to a device: copied by its engine from host memory that it can reach. */
  async #fromMirror(matrix: Stored, device: DeviceRates, mirroredBytes: number) {
    const bench = this.#streamBench;
    const cut = matrix.cutTo(mirroredBytes);
    const { size, slots } = this.#pieces(devicePieceBytes, cut);
    const pieces = piecesOf([cut], size, streamedPieces);
    const { pieceSeconds, wakeSeconds } = await streamRates(bench, cut);
    const long = await leastOf(() => stream(bench, pieces, slots, size, true));
    const gap = (long.seconds - long.bytes / device.denseBytesPerSecond) / pieces.length;
    const { denseBytesPerSecond, rowBytesPerSecond, rowSet } = device;
    return {
      ...(await rowRates([this.#rows(cut)], this.#options.activeShare)),
      pieceSeconds,
      wakeSeconds,
      denseBytesPerSecond,
      directRows: rowSet ?? { seconds: 0, bytesPerSecond: rowBytesPerSecond },
      pieceGapSeconds: Math.max(0, gap),
      overlapShare: 1,
    };
  }

  /** As a plan stages pieces, as far as there is room for them. */
  #pieces(most: number, { least }: Stored): { size: number; slots: number } {
    const room = this.#landing.byteLength;
    const size = Math.max(Math.min(most, Math.floor(room / stagingSlots)), least);
    return { size, slots: Math.max(1, Math.min(stagingSlots, Math.floor(room / size))) };
  }

  /** The first rows of a matrix in memory that the device can reach. */
  #mirror(matrix: Stored): Promise<DeviceBuffer> {
    const byteLength = matrix.cutTo(mirrorBytes).byteLength;
    const request = { label: 'rates', cause: 'workspace', byteLength } as const;
    return this.#backend.hostTier!.mirror(this.#prepared.weightsFile, matrix.filePosition, request);
  }

  get #streamBench(): StreamBench {
    return {
      backend: this.#backend,
      mover: this.#mover,
      staging: this.#landing,
      x: this.#x,
      out: this.#out,
    };
  }

  #stored(description: MatrixDescription): Stored {
    return new Stored(description, this.#prepared.tensor(description.id).byteOffset);
  }

  #rows({ description, filePosition }: Stored): RowBench {
    const rowBytes = storedRowBytes(description);
    const rows = storedRows(description);
    return { mover: this.#mover, description, filePosition, rowBytes, rows, arena: this.#landing };
  }

  /** The shortest time of each list, in turns, behind those that make a device record the ops; less what nothing takes. */
  async #leastSeconds(lists: readonly (readonly PlacedOp[])[]): Promise<number[]> {
    const nothing = await this.#idleSeconds();
    const warmUps = this.#backend.hostTier === undefined ? 1 : 2;
    const least = lists.map(() => Infinity);
    for (let pass = 0; pass < warmUps + passes; pass += 1) {
      for (const [index, ops] of lists.entries()) {
        const seconds = await this.#seconds(ops);
        if (pass >= warmUps) least[index] = Math.min(least[index]!, seconds);
      }
    }
    return least.map((seconds) => Math.max(seconds - nothing, seconds / 2));
  }

  /** Of a submission whose op takes no time. */
  async #idleSeconds(): Promise<number> {
    const times: number[] = [];
    for (let turn = 0; turn < 7; turn += 1) times.push(await this.#seconds(this.#compact));
    return Math.min(...times);
  }

  async #seconds(ops: readonly PlacedOp[]): Promise<number> {
    const began = process.hrtime.bigint();
    await this.#backend.submit(ops);
    return secondsSince(began);
  }

  async #roundTrip() {
    const [trips, others]: [number[], number[]] = [[], []];
    for (let turn = 0; turn < 30; turn += 1) {
      const began = process.hrtime.bigint();
      await this.#backend.submit(this.#compact);
      await this.#backend.read(subspan(this.#count, 0, 4));
      trips.push(secondsSince(began));
      const again = process.hrtime.bigint();
      await this.#backend.read(this.#count);
      others.push(secondsSince(again));
    }
    return { roundTripSeconds: settled(trips), readSeconds: settled(others) };
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

/** A matrix of input-major rows as it lies in the prepared file. */
class Stored implements StreamedMatrix {
  readonly description: MatrixDescription;
  readonly filePosition: number;
  readonly strided = false;

  constructor(description: MatrixDescription, filePosition: number) {
    this.description = description;
    this.filePosition = filePosition;
  }

  get byteLength(): number {
    return storedRows(this.description) * storedRowBytes(this.description);
  }

  /** Of the smallest piece. */
  get least(): number {
    return smallestPieceBytes(this.description);
  }

  /** Its first blocks of rows, one at least. */
  cutTo(limitBytes: number): Stored {
    if (this.byteLength <= limitBytes) return this;
    const blocks = Math.max(1, Math.floor(limitBytes / storedRowBytes(this.description) / blockInputs));
    return new Stored({ ...this.description, inputs: blocks * blockInputs }, this.filePosition);
  }
}

function secondsSince(began: bigint): number {
  return Number(process.hrtime.bigint() - began) / 1e9;
}
