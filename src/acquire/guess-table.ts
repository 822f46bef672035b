import { narrowF16, widenF16 } from '../base/half.js';

/** Numbers that a layer's input is reduced to before anything is guessed from it. */
export const guessFeatures = 16;

/** A learned guesser of a profile: for each matrix F16 `[neurons, features + 1]`, base64; the last column is the bias. */
export interface RecordedGuesser {
  readonly features: number;
  readonly tables: readonly { readonly id: string; readonly weights: string }[];
}

/** Uses of a neuron that its own mean counts against the mean of all tokens. */
const priorUses = 8;

/**
 * Projects a layer's normalised input, which follows from the residual of the layer before alone, on fixed random signs. The
 * projection comes from a counter, so that no file has to hold it.
 */
export class GuessProjection {
  readonly #signs: Int8Array; // [features, width]
  readonly width: number;

  constructor(width: number) {
    this.width = width;
    this.#signs = new Int8Array(guessFeatures * width);
    for (let index = 0; index < this.#signs.length; index += 1)
      this.#signs[index] = mixed(index) & 1 ? 1 : -1;
  }

  features(row: Float32Array): Float64Array {
    const sums = new Float64Array(guessFeatures);
    for (let feature = 0; feature < guessFeatures; feature += 1) {
      const base = feature * this.width;
      let sum = 0;
      for (let i = 0; i < this.width; i += 1) sum += this.#signs[base + i]! * row[i]!;
      sums[feature] = sum / Math.sqrt(this.width);
    }
    return sums;
  }
}

/** The finaliser of MurmurHash3 (Austin Appleby): every bit of the counter shows in the lowest. */
function mixed(counter: number): number {
  let word = Math.imul(counter ^ 0x9e3779b9, 0x85ebca6b);
  word = Math.imul(word ^ (word >>> 13), 0xc2b2ae35);
  return word ^ (word >>> 16);
}

/** Bytes that one table and the projection take in memory. */
export function guessTableBytes(neurons: number, width: number): number {
  return neurons * (guessFeatures + 1) * 4 + guessFeatures * width;
}

/**
 * Learns, for each neuron of a matrix, how the features of tokens that activate it differ from those of all tokens: linear
 * discriminants with one variance a feature (Fisher, 1936), their differences drawn towards 0 where a neuron was seldom used.
 */
export class GuessLearner {
  readonly #neurons: number;
  #tokens = 0;
  readonly #sums = new Float64Array(guessFeatures);
  readonly #squares = new Float64Array(guessFeatures);
  readonly #uses: Uint32Array;
  readonly #sumsOfActive: Float64Array; // [neurons, features]

  constructor(neurons: number) {
    this.#neurons = neurons;
    this.#uses = new Uint32Array(neurons);
    this.#sumsOfActive = new Float64Array(neurons * guessFeatures);
  }

  /** A token: its features and its activations, 0 where a neuron's row is not needed. */
  add(features: Float64Array, activations: Float32Array): void {
    this.#tokens += 1;
    for (let k = 0; k < guessFeatures; k += 1) {
      this.#sums[k]! += features[k]!;
      this.#squares[k]! += features[k]! ** 2;
    }
    for (let neuron = 0; neuron < this.#neurons; neuron += 1) {
      if (activations[neuron] === 0) continue;
      this.#uses[neuron]! += 1;
      const base = neuron * guessFeatures;
      for (let k = 0; k < guessFeatures; k += 1) this.#sumsOfActive[base + k]! += features[k]!;
    }
  }

  /** As `RecordedGuesser` holds it. */
  weights(): string {
    const tokens = Math.max(1, this.#tokens);
    const means = this.#sums.map((sum) => sum / tokens);
    const variances = this.#squares.map((square, k) => Math.max(1e-6, square / tokens - means[k]! ** 2));
    const table = new Uint16Array(this.#neurons * (guessFeatures + 1));
    for (let neuron = 0; neuron < this.#neurons; neuron += 1) {
      const uses = this.#uses[neuron]!;
      const at = neuron * (guessFeatures + 1);
      let bias = Math.log((uses + 0.5) / (tokens - uses + 0.5));
      for (let k = 0; k < guessFeatures; k += 1) {
        const mean = uses === 0 ? means[k]! : this.#sumsOfActive[neuron * guessFeatures + k]! / uses;
        const difference = ((mean - means[k]!) * uses) / (uses + priorUses);
        const weight = difference / variances[k]!;
        table[at + k] = narrowF16(Math.fround(weight));
        bias -= weight * (means[k]! + difference / 2);
      }
      table[at + guessFeatures] = narrowF16(Math.fround(bias));
    }
    return Buffer.from(table.buffer).toString('base64');
  }
}

/** Guesses which neurons of a matrix a token needs. */
export class GuessTable {
  readonly #weights: Float32Array; // [neurons, features + 1]
  readonly #neurons: number;

  constructor(recorded: string) {
    const bytes = Uint8Array.from(Buffer.from(recorded, 'base64'));
    this.#weights = Float32Array.from(new Uint16Array(bytes.buffer), widenF16);
    this.#neurons = this.#weights.length / (guessFeatures + 1);
  }

  /** The `most` likeliest neurons for any of some tokens, ascending; of equal ones the lowest. */
  guess(tokens: readonly Float64Array[], most: number): Uint32Array {
    const scores = new Float64Array(this.#neurons).fill(-Infinity);
    for (const features of tokens) {
      for (let neuron = 0; neuron < this.#neurons; neuron += 1) {
        const at = neuron * (guessFeatures + 1);
        let score = this.#weights[at + guessFeatures]!;
        for (let k = 0; k < guessFeatures; k += 1) score += this.#weights[at + k]! * features[k]!;
        if (score > scores[neuron]!) scores[neuron] = score;
      }
    }
    const order = Uint32Array.from(scores.keys()).sort((a, b) => scores[b]! - scores[a]! || a - b);
    return order.slice(0, most).sort();
  }
}

/** Base64 characters of a table. */
export function recordedLength(neurons: number): number {
  return Math.ceil((neurons * (guessFeatures + 1) * 2) / 3) * 4;
}
