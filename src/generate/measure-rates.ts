import { WeightMover } from '../acquire/executor.js';
import type { MachineRates } from '../acquire/machine-rates.js';
import type { Backend } from '../backend/backend.js';
import type { PlacedOp } from '../backend/ops.js';
import { storedBytes } from '../base/stored-type.js';
import { lowBitFormat } from '../checkpoint/low-bit.js';
import { largestLowBitInputs, lowBitLayout, roundedInputLayout } from '../checkpoint/low-bit-layout.js';
import { defaultLowBit } from '../checkpoint/low-bit-plan.js';
import { isSparse } from '../checkpoint/model-config.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { type DeviceBuffer, type Span, spanOf, subspan } from '../memory/buffers.js';
import { type KvShape, kvBytes } from '../memory/kv-cache.js';
import { Ledger } from '../memory/ledger.js';
import { layerRates, settled } from './layer-rates.js';
import { linkRowBytes } from './link-rates.js';
import { layerBytes } from './measured-layers.js';
import { certifyOps, type MeasuredOps, quantisedOps } from './measured-ops.js';
import {
  type MovingBench,
  pieceBytes,
  ratesFromFile,
  ratesFromMirror,
  stagingSlots,
} from './moving-rates.js';
import { greedyOfFinite } from './sampler.js';

const mebibyte = 1024 * 1024;
/** Larger than the caches of a processor, or of a device; products over it take some milliseconds. */
const sampleBytes = 64 * mebibyte;
const deviceSampleBytes = 256 * mebibyte;
/** Layers of a submission to a device: as many as hide what starting one costs. */
const deviceLayers = 12;
/** Products of a submission to a device, where no layers are measured. */
const deviceProducts = 16;
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
  readonly #compact: readonly PlacedOp[];
  readonly #count: Span;

  constructor(prepared: PreparedModel, backend: Backend, options: MeasureOptions) {
    this.#prepared = prepared;
    this.#backend = backend;
    this.#options = options;
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
    const bench: MovingBench = {
      prepared: this.#prepared,
      backend,
      mover: new WeightMover(backend, this.#prepared.weightsFile, new Ledger()),
      staging: this.#landing,
      x: this.#x,
      out: this.#out,
      activeShare: this.#options.activeShare,
    };
    const moving = await (device === null
      ? ratesFromFile(bench, layers.computeBytesPerSecond)
      : ratesFromMirror(bench, device));
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

function secondsSince(began: bigint): number {
  return Number(process.hrtime.bigint() - began) / 1e9;
}
