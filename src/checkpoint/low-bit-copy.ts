import type { StoredType } from '../base/stored-type.js';
import {
  type LowBitFormat,
  lowBitGroup,
  paddedInputs,
  RowQuantiser,
  roundEven,
  roundedUp,
} from './low-bit.js';
import { type LowBitLayout, largestDirectionElement, lowBitLayout, packCodes } from './low-bit-layout.js';

/** Directions of a layer's inputs as a copy stores them: V = elements * 2^-exponent. */
export interface LowBitDirections {
  readonly count: number; // r
  readonly exponent: number;
  /** [r, Kp], the padding 0, |element| at most 8191. */
  readonly elements: Int16Array;
}

/** Rows of a copy that are to be made: neurons `[begin, end)` of N, from their stored weights, [end - begin, K]. */
export interface LowBitRows {
  readonly inputs: number; // K
  readonly format: LowBitFormat;
  readonly directions: LowBitDirections | null;
  readonly layout: LowBitLayout;
  readonly type: StoredType;
  readonly weights: Uint8Array;
  readonly begin: number;
  readonly end: number;
  /** The whole copy; rows apart from these are left alone. */
  readonly copy: Uint8Array;
}

/** Makes rows as `LowBitCopyWriter.add` does, to the byte, off the event loop: several calls may run at once. */
export type LowBitRowMaker = (rows: LowBitRows) => Promise<void>;

/** Rounds directions, given as r rows of K numbers of about unit length, to what a copy stores. */
export function roundDirections(rows: readonly Float64Array[], inputs: number): LowBitDirections {
  let largest = 0;
  for (const row of rows) for (const value of row) largest = Math.max(largest, Math.abs(value));
  let exponent = 0;
  while (exponent < 20 && largest * 2 ** (exponent + 1) <= largestDirectionElement) exponent += 1;
  const padded = paddedInputs(inputs);
  const elements = new Int16Array(rows.length * padded);
  rows.forEach((row, j) => {
    for (let i = 0; i < inputs; i += 1) elements[j * padded + i] = roundEven(row[i]! * 2 ** exponent);
  });
  return { count: rows.length, exponent, elements };
}

/**
 * Makes the low-bit copy of a matrix, neuron by neuron (docs/certificates.md, "The copy"). All norms are computed in
 * binary64, inflated by more than their rounding and stored rounded up, so that a bound from them is one.
 */
export class LowBitCopyWriter {
  readonly layout: LowBitLayout;
  /** The whole copy; [neurons] rows of each section are filled by `add`, in any order. */
  readonly bytes: Uint8Array;
  readonly #quantiser: RowQuantiser;
  readonly #directions: LowBitDirections | null;
  readonly #records: Float32Array;
  readonly #residual: Float64Array; // E, then E'
  readonly #along: Float64Array; // [r]
  readonly #basis: readonly Float64Array[]; // the elements of each direction, [r] times [K]
  readonly #inside: Float64Array; // [K]
  readonly #unit: number;
  /** An upper bound of the Frobenius norm of V. */
  readonly #basisNorm: number;

  constructor(
    readonly inputs: number,
    readonly outputs: number,
    readonly format: LowBitFormat,
    directions: LowBitDirections | null,
  ) {
    const count = directions?.count ?? 0;
    this.layout = lowBitLayout(format, inputs, outputs, count);
    this.bytes = new Uint8Array(this.layout.byteLength);
    this.#directions = directions;
    const { records } = this.layout;
    this.#records = new Float32Array(this.bytes.buffer, records.byteOffset, records.byteLength / 4);
    this.#quantiser = new RowQuantiser(inputs, format);
    this.#residual = new Float64Array(inputs);
    this.#along = new Float64Array(count);
    this.#inside = new Float64Array(inputs);
    const padded = paddedInputs(inputs);
    this.#basis = Array.from({ length: count }, (_, j) =>
      Float64Array.from(directions!.elements.subarray(j * padded, j * padded + inputs)),
    );
    this.#unit = directions === null ? 1 : 2 ** -directions.exponent;
    let squares = 0;
    for (const element of directions?.elements ?? []) squares += element * element;
    this.#basisNorm = Math.sqrt(squares) * this.#unit * (1 + 2 ** -50);
    if (directions !== null) {
      const { byteOffset, byteLength } = this.layout.directions;
      new Int16Array(this.bytes.buffer, byteOffset, byteLength / 2).set(directions.elements);
    }
  }

  /** Adds a neuron by its row of weights, [inputs], finite. */
  add(neuron: number, weights: Float32Array): void {
    const { scale, codes, groupScales } = this.#quantiser.quantise(weights);
    this.#storeCodes(neuron, codes, groupScales);
    const residual = this.#residual;
    let squares = 0;
    let missed = 0;
    for (let i = 0; i < this.inputs; i += 1) {
      const weight = weights[i]!;
      const rest = weight - scale * groupScales[Math.floor(i / lowBitGroup)]! * codes[i]!;
      residual[i] = rest;
      squares += weight * weight;
      missed += rest * rest;
    }
    const inflation = 1 + (this.inputs + 4) * 2 ** -52;
    const at = neuron * this.layout.recordFloats;
    this.#records[at] = scale;
    this.#records[at + 1] = roundedUp(Math.sqrt(squares) * inflation);
    const whole = Math.sqrt(missed) * inflation;
    if (this.#directions === null) this.#records[at + 2] = roundedUp(whole);
    else this.#storeComponents(neuron, whole, this.#directions.count);
  }

  #storeCodes(neuron: number, codes: Int8Array, groupScales: Uint8Array): void {
    const { layout, format, bytes } = this;
    const row = layout.codes.byteOffset + neuron * layout.codeRowBytes;
    const { bits } = format;
    if (bits === 8) {
      bytes.set(new Uint8Array(codes.buffer), row);
    } else {
      const highBytes = (bits - 4) * 4;
      const above = layout.high.byteOffset + neuron * layout.highRowBytes;
      for (let group = 0; group < groupScales.length; group += 1) {
        packCodes(
          bits,
          codes.subarray(group * lowBitGroup, (group + 1) * lowBitGroup),
          bytes.subarray(row + group * 16, row + (group + 1) * 16),
          bytes.subarray(above + group * highBytes, above + (group + 1) * highBytes),
        );
      }
    }
    if (format.groups) bytes.set(groupScales, layout.groupScales.byteOffset + neuron * layout.groupRowBytes);
  }

  /** A = E Vᵀ in 8 bits; what its rounding leaves stays in E' = E - A V and in E' Vᵀ, whatever V is. */
  #storeComponents(neuron: number, whole: number, count: number): void {
    const { inputs, layout, bytes } = this;
    const residual = this.#residual;
    const along = this.#along;
    this.#project(along);
    let largest = 0;
    for (let j = 0; j < count; j += 1) largest = Math.max(largest, Math.abs(along[j]!));
    const scale = roundedUp(largest / 127);
    const stored = new Int8Array(bytes.buffer, layout.components.byteOffset + neuron * count, count);
    let squares = 0;
    for (let j = 0; j < count; j += 1) {
      const code = scale === 0 ? 0 : Math.min(127, Math.max(-127, roundEven(along[j]! / scale)));
      stored[j] = code;
      squares += code * code;
    }
    const step = scale * this.#unit;
    const inside = this.#inside.fill(0); // whole numbers below 2^31
    for (let j = 0; j < count; j += 1) {
      const code = stored[j]!;
      const direction = this.#basis[j]!;
      for (let i = 0; i < inputs; i += 1) inside[i]! += code * direction[i]!;
    }
    let missed = 0;
    for (let i = 0; i < inputs; i += 1) {
      const rest = residual[i]! - step * inside[i]!;
      residual[i] = rest;
      missed += rest * rest;
    }
    this.#project(along);
    let tails = 0;
    for (const tail of along) tails += tail * tail;
    const inflation = 1 + (inputs + 4) * 2 ** -52;
    // E' carries the rounding of E, which is relative to E and not to it.
    const outside = Math.sqrt(missed) * inflation + whole * 2 ** -50;
    const at = neuron * layout.recordFloats;
    this.#records[at + 2] = roundedUp(outside);
    this.#records[at + 3] = scale;
    this.#records[at + 4] = roundedUp(
      Math.sqrt(tails) * inflation + (inputs + 8) * 2 ** -51 * (outside + whole) * this.#basisNorm,
    );
    this.#records[at + 5] = roundedUp(Math.sqrt(squares) * scale * inflation);
  }

  /** E . V[j] of every direction, in binary64 and in the order of inputs; four at once hide the latency of additions. */
  #project(along: Float64Array): void {
    const residual = this.#residual;
    for (let j = 0; j < along.length; j += 4) {
      const [a, b, c, d] = this.#basis.slice(j, j + 4) as [
        Float64Array,
        Float64Array,
        Float64Array,
        Float64Array,
      ];
      let [p, q, r, s] = [0, 0, 0, 0];
      for (let i = 0; i < this.inputs; i += 1) {
        const rest = residual[i]!;
        p += rest * a[i]!;
        q += rest * b[i]!;
        r += rest * c[i]!;
        s += rest * d[i]!;
      }
      along[j] = p * this.#unit;
      along[j + 1] = q * this.#unit;
      along[j + 2] = r * this.#unit;
      along[j + 3] = s * this.#unit;
    }
  }
}
