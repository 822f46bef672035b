import { widenBf16 } from '../../base/half.js';
import { quantisedFormats } from '../../base/quantised-type.js';
import { blockInputs, type QuantisedLinearOp } from '../ops.js';
import type { OracleMemory } from './oracle-memory.js';

const f = Math.fround;

/** `linear` by the block rule, each weight being its code times its scale. */
export function quantisedLinear(memory: OracleMemory, op: QuantisedLinearOp): void {
  const { rows, inputs, outputs } = op;
  const x = memory.floats(op.x);
  const out = memory.floats(op.out);
  const bias = op.bias === null ? null : memory.floats(op.bias);
  const residual = op.residual === null ? null : memory.floats(op.residual);
  const acc = new Float32Array(rows * outputs); // storing into it rounds the sum to binary32
  const weights = weightReader(memory, op);
  for (let t = 0; t < rows; t += 1) out.fill(0, t * outputs, (t + 1) * outputs);
  for (let block = 0; block < inputs; block += blockInputs) {
    acc.fill(0);
    for (let i = block; i < Math.min(inputs, block + blockInputs); i += 1) {
      const w = weights(i);
      for (let t = 0; t < rows; t += 1) {
        const value = x[t * inputs + i]!;
        const start = t * outputs;
        for (let j = 0; j < outputs; j += 1) acc[start + j] = acc[start + j]! + f(value * w[j]!);
      }
    }
    for (let at = 0; at < acc.length; at += 1) out[at] = out[at]! + acc[at]!;
  }
  for (let at = 0; at < acc.length; at += 1) {
    if (bias !== null) out[at] = out[at]! + bias[at % outputs]!;
    if (residual !== null) out[at] = out[at]! + residual[at]!;
  }
}

/** Weights of one input to all outputs; a returned row is valid until the next call. */
function weightReader(memory: OracleMemory, op: QuantisedLinearOp): (input: number) => Float32Array {
  const { outputs } = op;
  const { bits, inputsPerWord, groupInputs } = quantisedFormats[op.type];
  const codes = memory.integers(op.codes);
  const scaleBytes = memory.bytes(op.scales);
  const scales = new Uint16Array(scaleBytes.buffer, scaleBytes.byteOffset, scaleBytes.byteLength / 2);
  const row = new Float32Array(outputs);
  return (input) => {
    const word = Math.floor(input / inputsPerWord) * outputs;
    const group = Math.floor(input / groupInputs) * outputs;
    const up = 32 - bits * (1 + (input % inputsPerWord));
    for (let j = 0; j < outputs; j += 1) {
      const code = (codes[word + j]! << up) >> (32 - bits);
      row[j] = code * widenBf16(scales[group + j]!);
    }
    return row;
  };
}
