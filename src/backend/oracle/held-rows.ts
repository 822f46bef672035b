import { storedBytes } from '../../base/stored-type.js';
import type { GuessRowsOp, HeldInputsOp, HeldOutputsOp, RetainRowsOp } from '../ops.js';
import { freshPlace, rowIndexLayout } from '../row-index.js';
import { blockDot } from './block-sum.js';
import { addBiasAndResidual, clear, sumInputs, type Target } from './linear.js';
import type { OracleMemory } from './oracle-memory.js';
import { type RowReader, storedRows } from './stored-rows.js';

const f = Math.fround;

export function retainRows(memory: OracleMemory, { active, index, hits }: RetainRowsOp): void {
  const words = unsigned(memory.integers(index.span));
  const neurons = neuronsOf(memory, active);
  const held = neurons.filter((neuron) => words[neuron] !== 0);
  memory.integers(hits)[0] = held.length;
  if (index.replaces) replace(words, index.places, index.neurons, neurons, held);
}

function replace(
  words: Uint32Array,
  places: number,
  width: number,
  neurons: readonly number[],
  held: readonly number[],
): void {
  const layout = rowIndexLayout({ neurons: width, places });
  const missing = neurons.filter((neuron) => words[neuron] === 0);
  const used = held.map((neuron) => placeOf(words[neuron]!));
  for (const neuron of held) words[neuron] = placeOf(words[neuron]!) + 1;
  const taken = new Set(used);
  const order = Array.from(words.subarray(layout.order, layout.order + places));
  const idle = order.filter((place) => !taken.has(place));
  const entering = missing.slice(0, idle.length);
  entering.forEach((neuron, index) => {
    const place = idle[index]!;
    const before = words[layout.neuronOf + place]!;
    if (before !== 0) words[before - 1] = 0;
    words[layout.neuronOf + place] = neuron + 1;
    words[neuron] = freshPlace + place + 1;
    used.push(place);
  });
  words.set([...idle.slice(entering.length), ...used], layout.order);
  words.set(used, layout.used);
  words.set(missing.slice(0, places), layout.missing);
}

export function guessRows(memory: OracleMemory, { set, index, held, matrix, guessed }: GuessRowsOp): void {
  const words = unsigned(memory.integers(index.span));
  const neurons = neuronsOf(memory, set).slice(0, index.places);
  const rowBytes = matrix.rowStride * storedBytes[matrix.type];
  const [from, to] = [memory.bytes(matrix.span), memory.bytes(held)];
  words.fill(0, 0, index.neurons);
  neurons.forEach((neuron, place) => {
    words[neuron] = place + 1;
    to.set(from.subarray(neuron * rowBytes, (neuron + 1) * rowBytes), place * rowBytes);
  });
  memory.integers(guessed)[0] = neurons.length;
}

export function heldInputs(memory: OracleMemory, op: HeldInputsOp): void {
  const { rows, outputs } = op;
  const target: Target = { out: memory.floats(op.out), rows, stride: outputs, offset: 0, outputs };
  clear(target);
  const neurons = neuronsOf(memory, op.active);
  const inputs = neurons.map((neuron) => ({ input: neuron, row: neuron }));
  sumInputs(memory.floats(op.x), op.index.neurons, inputs, rowsOf(memory, op, outputs), target);
  addBiasAndResidual(memory, op.bias, op.residual, target);
}

export function heldOutputs(memory: OracleMemory, op: HeldOutputsOp): void {
  const x = memory.floats(op.x);
  const out = memory.floats(op.out);
  const bias = op.bias === null ? null : memory.floats(op.bias);
  const weights = rowsOf(memory, op, op.inputs);
  for (const neuron of neuronsOf(memory, op.active)) {
    const w = weights(neuron);
    for (let t = 0; t < op.rows; t++) {
      const dot = blockDot(x, t * op.inputs, w, 0, op.inputs, 0);
      out[t * op.outStride + neuron] = bias === null ? dot : f(dot + bias[neuron]!);
    }
  }
}

/** Rows by neuron, from where they lie; a fresh one is written to its place when it is first asked for. */
function rowsOf(memory: OracleMemory, op: HeldInputsOp | HeldOutputsOp, width: number): RowReader {
  const { type, rowStride, span } = op.matrix;
  const words = unsigned(memory.integers(op.index.span));
  const far = storedRows(memory, span, type, rowStride, width);
  const near = storedRows(memory, op.held, type, rowStride, width);
  const [from, to] = [memory.bytes(span), memory.bytes(op.held)];
  const rowBytes = rowStride * storedBytes[type];
  return (neuron) => {
    const word = words[neuron]!;
    if (word !== 0 && word < freshPlace) return near(word - 1);
    if (word !== 0) {
      const begin = neuron * rowBytes;
      to.set(from.subarray(begin, begin + width * storedBytes[type]), placeOf(word) * rowBytes);
    }
    return far(neuron);
  };
}

function placeOf(word: number): number {
  return (word >= freshPlace ? word - freshPlace : word) - 1;
}

function neuronsOf(memory: OracleMemory, active: RetainRowsOp['active']): number[] {
  const words = memory.integers(active);
  return Array.from(words.subarray(1, 1 + words[0]!));
}

function unsigned({ buffer, byteOffset, length }: Int32Array): Uint32Array {
  return new Uint32Array(buffer, byteOffset, length);
}
