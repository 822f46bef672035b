import type { Span } from '../../memory/buffers.js';
import { type ActiveInputsOp, type ActiveOutputsOp, blockInputs, type LinearOp } from '../ops.js';
import { blockDot } from './block-sum.js';
import type { OracleMemory } from './oracle-memory.js';
import { type RowReader, storedRows } from './stored-rows.js';

const f = Math.fround;

/** Where a projection puts its result. */
export interface Target {
  readonly out: Float32Array;
  readonly rows: number;
  readonly stride: number;
  readonly offset: number;
  readonly outputs: number;
}

export function linear(memory: OracleMemory, op: LinearOp): void {
  const target: Target = {
    out: memory.floats(op.out),
    rows: op.rows,
    stride: op.outStride,
    offset: op.outOffset,
    outputs: op.outputs,
  };
  if (!op.continues) clear(target);
  if (op.matrix.layout === 'output-major') linearOutputMajor(memory, op, target);
  else {
    const inputs = Array.from({ length: op.inputEnd - op.inputBegin }, (_, index) => ({
      input: op.inputBegin + index,
      row: index,
    }));
    const weights = storedRows(memory, op.matrix.span, op.matrix.type, op.matrix.rowStride, op.outputs);
    sumInputs(memory.floats(op.x), op.xStride, inputs, weights, target);
  }
  addBiasAndResidual(memory, op.bias, op.residual, target);
}

function linearOutputMajor(memory: OracleMemory, op: LinearOp, target: Target): void {
  const x = memory.floats(op.x);
  const count = op.inputEnd - op.inputBegin;
  const weights = storedRows(memory, op.matrix.span, op.matrix.type, op.matrix.rowStride, count);
  for (let output = 0; output < op.outputs; output++) {
    const w = weights(output);
    for (let t = 0; t < op.rows; t++) {
      const at = t * target.stride + target.offset + output;
      target.out[at] = blockDot(x, t * op.xStride + op.inputBegin, w, 0, count, target.out[at]!);
    }
  }
}

export function activeInputs(memory: OracleMemory, op: ActiveInputsOp): void {
  const target: Target = {
    out: memory.floats(op.out),
    rows: op.rows,
    stride: op.outputs,
    offset: 0,
    outputs: op.outputs,
  };
  if (!op.continues) clear(target);
  const inputs = listed(memory, op).map(({ neuron, row }) => ({ input: neuron, row }));
  const weights = storedRows(memory, op.matrix.span, op.matrix.type, op.matrix.rowStride, op.outputs);
  sumInputs(memory.floats(op.x), op.xStride, inputs, weights, target);
  addBiasAndResidual(memory, op.bias, op.residual, target);
}

export function activeOutputs(memory: OracleMemory, op: ActiveOutputsOp): void {
  const x = memory.floats(op.x);
  const out = memory.floats(op.out);
  const bias = op.bias === null ? null : memory.floats(op.bias);
  const weights = storedRows(memory, op.matrix.span, op.matrix.type, op.matrix.rowStride, op.inputs);
  for (const { neuron, row } of listed(memory, op)) {
    const w = weights(row);
    for (let t = 0; t < op.rows; t++) {
      const dot = blockDot(x, t * op.inputs, w, 0, op.inputs, 0);
      out[t * op.outStride + neuron] = bias === null ? dot : f(dot + bias[neuron]!);
    }
  }
}

/** The neurons at the list positions of an op, with the matrix rows that hold them. */
function listed(
  memory: OracleMemory,
  op: ActiveInputsOp | ActiveOutputsOp,
): { neuron: number; row: number }[] {
  const active = memory.integers(op.active);
  const slots = op.slots === null ? null : memory.integers(op.slots);
  const end = op.listEnd === -1 ? active[0]! : op.listEnd;
  const result: { neuron: number; row: number }[] = [];
  for (let position = op.listBegin; position < end; position++) {
    const neuron = active[1 + position]!;
    result.push({ neuron, row: slots === null ? neuron : slots[position]! });
  }
  return result;
}

/** The block rule over ascending inputs of an input-major matrix; every input of a block adds one product. */
export function sumInputs(
  x: Float32Array,
  xStride: number,
  inputs: readonly { input: number; row: number }[],
  weights: RowReader,
  target: Target,
): void {
  const { outputs, rows } = target;
  const acc = new Float32Array(rows * outputs); // storing into it rounds the sum to binary32
  let block = -1;
  for (const { input, row } of inputs) {
    const itsBlock = Math.floor(input / blockInputs);
    if (itsBlock !== block) addBlock(acc, target);
    block = itsBlock;
    const w = weights(row);
    for (let t = 0; t < rows; t++) {
      const value = x[t * xStride + input]!;
      const start = t * outputs;
      for (let j = 0; j < outputs; j++) acc[start + j] = acc[start + j]! + f(value * w[j]!);
    }
  }
  addBlock(acc, target);
}

/** y = y + acc, then acc = +0. A block without inputs adds +0, which changes no y. */
function addBlock(acc: Float32Array, { out, rows, stride, offset, outputs }: Target): void {
  for (let t = 0; t < rows; t++) {
    for (let j = 0; j < outputs; j++) {
      const at = t * stride + offset + j;
      out[at] = out[at]! + acc[t * outputs + j]!;
    }
  }
  acc.fill(0);
}

export function clear({ out, rows, stride, offset, outputs }: Target): void {
  for (let t = 0; t < rows; t++) out.fill(0, t * stride + offset, t * stride + offset + outputs);
}

export function addBiasAndResidual(
  memory: OracleMemory,
  biasSpan: Span | null,
  residualSpan: Span | null,
  { out, rows, stride, offset, outputs }: Target,
): void {
  const bias = biasSpan === null ? null : memory.floats(biasSpan);
  const residual = residualSpan === null ? null : memory.floats(residualSpan);
  for (let t = 0; t < rows; t++) {
    for (let j = 0; j < outputs; j++) {
      const at = t * stride + offset + j;
      if (bias !== null) out[at] = out[at]! + bias[j]!;
      if (residual !== null) out[at] = out[at]! + residual[at]!;
    }
  }
}
