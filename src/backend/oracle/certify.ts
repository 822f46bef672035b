import { paddedInputs } from '../../checkpoint/low-bit.js';
import {
  type LowBitSection,
  roundedInputLayout,
  roundedInputScalars,
} from '../../checkpoint/low-bit-layout.js';
import { subspan } from '../../memory/buffers.js';
import type { CertifyOp } from '../ops.js';
import { lowBitNeurons } from './low-bit-rows.js';
import type { OracleMemory } from './oracle-memory.js';

/** Covers every rounding of the bound's own binary64 arithmetic, which are below 2^-48 of its terms. */
const slack = 2 ** -40;
/** No sum of the contract can overflow below it. */
const largestProduct = 2 ** 126;

/** docs/certificates.md, "The bound". */
export function certify(memory: OracleMemory, op: CertifyOp): void {
  const { inputs, outputs, directions } = op.copy;
  const padded = paddedInputs(inputs);
  const layout = roundedInputLayout(op.rows, inputs, directions);
  const part = ({ byteOffset, byteLength }: LowBitSection) =>
    memory.bytes(subspan(op.input, byteOffset, byteLength));
  const scalarBytes = part(layout.scalars);
  const view = new DataView(scalarBytes.buffer, scalarBytes.byteOffset, scalarBytes.byteLength);
  const whole = (bytes: Uint8Array) => new Int16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  const rounded = whole(part(layout.inputs));
  const ofDirections = whole(part(layout.components));
  const bias = op.bias === null ? null : memory.floats(op.bias);
  const out = memory.floats(op.out);
  const threshold = Math.fround(op.threshold);
  const neuronAt = lowBitNeurons(memory, op.copy);
  for (let n = 0; n < outputs; n++) {
    const { record, factors, components } = neuronAt(n);
    for (let t = 0; t < op.rows; t++) {
      const scalars = Array.from({ length: roundedInputScalars }, (_, index) =>
        view.getFloat64((t * roundedInputScalars + index) * 8, true),
      );
      let product = 0; // whole, below 2^53
      for (let i = 0; i < padded; i++) product += factors[i]! * rounded[t * padded + i]!;
      let inside = 0; // whole, below 2^31
      for (let j = 0; j < directions; j++) inside += components[j]! * ofDirections[t * directions + j]!;
      const certified = isInactive(scalars, record, product, inside, bias?.[n] ?? 0, threshold);
      out[t * outputs + n] = certified ? 0 : 1;
    }
  }
}

function isInactive(
  scalars: readonly number[],
  record: Float32Array,
  product: number,
  inside: number,
  bias: number,
  threshold: number,
): boolean {
  const [scale, componentScale, ofWeights, ofResiduals, ofTails, ofComponents, constant, xNorm] = scalars as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [rowScale, weights, residuals] = record as unknown as [number, number, number];
  const s = scale * rowScale * product;
  let margin = constant + ofWeights * weights + ofResiduals * residuals;
  let along = 0;
  if (record.length === 8) {
    along = componentScale * record[3]! * inside;
    margin = margin + ofTails * record[4]! + ofComponents * record[5]!;
  }
  const magnitude = Math.abs(s) + Math.abs(along) + Math.abs(bias) + margin;
  const bound = s + along + bias + margin + slack * magnitude;
  return xNorm * weights < largestProduct && bound < threshold;
}
