import { paddedInputs, roundEven } from '../../checkpoint/low-bit.js';
import {
  largestDirections,
  roundedInputLayout,
  roundedInputScalars,
} from '../../checkpoint/low-bit-layout.js';
import { subspan } from '../../memory/buffers.js';
import { blockInputs, type LowBitCopy, type RoundInputOp } from '../ops.js';
import { directionsOf } from './low-bit-rows.js';
import type { OracleMemory } from './oracle-memory.js';

const mostRounded = 32_767;

/** docs/certificates.md, "The input of a pass". */
export function roundInput(memory: OracleMemory, op: RoundInputOp): void {
  const { inputs, directions } = op.copy;
  const padded = paddedInputs(inputs);
  const layout = roundedInputLayout(op.rows, inputs, directions);
  const part = ({ byteOffset, byteLength }: { byteOffset: number; byteLength: number }) =>
    memory.bytes(subspan(op.out, byteOffset, byteLength));
  const scalarBytes = part(layout.scalars);
  const scalars = new DataView(scalarBytes.buffer, scalarBytes.byteOffset, scalarBytes.byteLength);
  const rounded = asInt16(part(layout.inputs));
  const components = asInt16(part(layout.components));
  const x = memory.floats(op.x);
  const basis = directionsOf(memory, op.copy);
  for (let t = 0; t < op.rows; t++) {
    const row = roundRow(x.subarray(t * inputs, (t + 1) * inputs), op.copy, basis);
    row.scalars.forEach((value, index) => {
      scalars.setFloat64((t * roundedInputScalars + index) * 8, value, true);
    });
    rounded.set(row.rounded, t * padded);
    components.set(row.components, t * directions);
  }
}

interface RoundedRow {
  readonly scalars: readonly number[];
  readonly rounded: Int16Array; // [Kp]
  readonly components: Int16Array; // [r]
}

function roundRow(x: Float32Array, copy: LowBitCopy, basis: Int16Array): RoundedRow {
  const { inputs, directions, directionExponent } = copy;
  const padded = paddedInputs(inputs);
  const rounded = new Int16Array(padded);
  const components = new Int16Array(directions);
  const largest = x.reduce(
    (most, value) => (Number.isNaN(value) ? Infinity : Math.max(most, Math.abs(value))),
    0,
  );
  if (largest === Infinity) return { scalars: [0, 0, 0, 0, 0, 0, 0, Infinity], rounded, components };

  const scale = 2 ** (exponentOf(largest) - 14);
  for (let i = 0; i < inputs; i++) rounded[i] = clamped(roundEven(x[i]! / scale));
  const inflation = 1 + (inputs + 4) * 2 ** -52;
  const xNorm = Math.sqrt(blockSum64(inputs, (i) => x[i]! * x[i]!)) * inflation;
  const missed = (i: number) => x[i]! - rounded[i]! * scale;
  const missedNorm = Math.sqrt(blockSum64(inputs, (i) => missed(i) * missed(i))) * inflation;
  const terms = blockInputs + Math.ceil(inputs / blockInputs) + 2;
  const gamma = (terms * 2 ** -24) / (1 - terms * 2 ** -24);
  const ofWeights = gamma * xNorm + missedNorm;
  const constant = inputs * 2 ** -149;
  if (directions === 0) {
    let squares = 0; // whole, below 2^53
    for (const value of rounded) squares += value * value;
    const ofResiduals = Math.sqrt(squares) * scale * inflation;
    return { scalars: [scale, 0, ofWeights, ofResiduals, 0, 0, constant, xNorm], rounded, components };
  }

  // Components along the directions: whole numbers below 2^53 in units of scale * unit.
  const exact = Array.from({ length: directions }, (_, j) => {
    let sum = 0;
    for (let i = 0; i < inputs; i++) sum += basis[j * padded + i]! * rounded[i]!;
    return sum;
  });
  const largestComponent = exact.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const shift = 2 ** Math.max(0, exponentOf(largestComponent) - 14);
  for (let j = 0; j < directions; j++) components[j] = clamped(roundEven(exact[j]! / shift));
  const unit = scale * 2 ** -directionExponent;
  let squares = 0;
  let missedSquares = 0;
  for (let j = 0; j < directions; j++) {
    const value = components[j]!;
    const rest = exact[j]! - value * shift;
    squares += value * value;
    missedSquares = missedSquares + rest * rest;
  }
  const componentInflation = 1 + (largestDirections + 4) * 2 ** -52;
  const componentScale = unit * shift;
  const ofTails = Math.sqrt(squares) * componentScale * componentInflation;
  const ofComponents = Math.sqrt(missedSquares) * unit * componentInflation;
  const two = 2 ** (2 * directionExponent);
  const outside = (i: number) => {
    let inside = 0;
    for (let j = 0; j < directions; j++) inside += basis[j * padded + i]! * components[j]!;
    return rounded[i]! * two - inside * shift;
  };
  const outsideNorm = Math.sqrt(
    blockSum64(inputs, (i) => {
      const y = outside(i);
      return y * y;
    }),
  );
  const ofResiduals = outsideNorm * (unit * 2 ** -directionExponent) * inflation;
  return {
    scalars: [scale, componentScale, ofWeights, ofResiduals, ofTails, ofComponents, constant, xNorm],
    rounded,
    components,
  };
}

/** The block rule in binary64. */
function blockSum64(count: number, term: (index: number) => number): number {
  let y = 0;
  for (let block = 0; block < count; block += blockInputs) {
    const end = Math.min(block + blockInputs, count);
    let acc = 0;
    for (let index = block; index < end; index++) acc += term(index);
    y += acc;
  }
  return y;
}

function clamped(value: number): number {
  return Math.min(mostRounded, Math.max(-mostRounded, value));
}

const float = new Float64Array(1);
const bits = new BigUint64Array(float.buffer);

/** floor(log2 value) of a positive number, and -126 for those below 2^-126, zero among them. */
function exponentOf(value: number): number {
  float[0] = value;
  return Math.max(-126, Number(bits[0]! >> 52n) - 1023);
}

function asInt16(bytes: Uint8Array): Int16Array {
  return new Int16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
}
