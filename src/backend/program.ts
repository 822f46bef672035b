import { DefectError } from '../base/errors.js';
import { quantisedFormats } from '../base/quantised-type.js';
import type { StoredType } from '../base/stored-type.js';
import { type LowBitSection, lowBitLayout, roundedInputLayout } from '../checkpoint/low-bit-layout.js';
import type { ActivationKind } from '../checkpoint/model-config.js';
import type { Span } from '../memory/buffers.js';
import type { KvLayer, LowBitCopy, Matrix, Op, ProductNumerics } from './ops.js';
import type { RowIndex } from './row-index.js';

/**
 * Ops as a flat Float64 program, `wordsPerOp` words an op: what the CPU kernels read, the same for the native library
 * and for WebAssembly. Word 0 is the opcode; addresses, counts and F32 scalars are exact in binary64 (addresses are
 * below 2^47); an absent span is address 0 (no buffer lies at 0). native/program.h and wasm/program.as.ts name the
 * same words.
 */
export const wordsPerOp = 32;

const storedTypes: Record<StoredType, number> = { f32: 0, f16: 1, bf16: 2 };

/** Numbers of the activations in native/, wasm/ and cuda/. */
export const activationCodes: Record<ActivationKind, number> = {
  relu: 0,
  relu2: 1,
  fatrelu: 2,
  silu: 3,
  gelu: 4,
  gelu_tanh: 5,
  quick_gelu: 6,
  sigmoid: 7,
  tanh: 8,
  identity: 9,
};

export const opcodes: Record<Op['kind'], number> = {
  gather: 1,
  linear: 2,
  compact: 3,
  'active-inputs': 4,
  'active-outputs': 5,
  activate: 6,
  'gated-product': 7,
  add: 8,
  norm: 9,
  rope: 10,
  'store-kv': 11,
  attention: 12,
  'round-input': 30,
  certify: 31,
  'quantised-linear': 20,
  'retain-rows': 40, // these on devices alone
  'held-inputs': 41,
  'held-outputs': 42,
  greedy: 43,
  'guess-rows': 44,
};

/** Encodes ops into `[ops, wordsPerOp]` words. */
export function encodeProgram(ops: readonly Op[]): Float64Array {
  const words = new Float64Array(ops.length * wordsPerOp);
  ops.forEach((op, index) => {
    const fields = operands(op);
    if (fields.length + 1 > wordsPerOp) throw new DefectError(`Op "${op.kind}" has too many operands`);
    words[index * wordsPerOp] = opcodes[op.kind];
    words.set(fields, index * wordsPerOp + 1);
  });
  return words;
}

function operands(op: Op): number[] {
  switch (op.kind) {
    case 'gather':
      return [
        op.rows,
        op.columns,
        at(op.table),
        op.tableRows,
        storedTypes[op.type],
        op.rowStride,
        op.columnStride,
        at(op.ids),
        at(op.out),
      ];
    case 'linear':
      return [
        op.rows,
        at(op.x),
        op.xStride,
        op.inputBegin,
        op.inputEnd,
        op.outputs,
        ...matrix(op.matrix),
        at(op.out),
        op.outStride,
        op.outOffset,
        op.continues ? 1 : 0,
        at(op.bias),
        at(op.residual),
        native(op),
      ];
    case 'quantised-linear':
      return [
        op.rows,
        at(op.x),
        op.inputs,
        op.outputs,
        quantisedFormats[op.type].bits,
        at(op.codes),
        at(op.scales),
        at(op.out),
        at(op.bias),
        at(op.residual),
      ];
    case 'compact':
      return [op.rows, op.width, at(op.x), at(op.active)];
    case 'active-inputs':
      return [
        op.rows,
        at(op.x),
        op.xStride,
        at(op.active),
        op.listBegin,
        op.listEnd,
        at(op.slots),
        op.outputs,
        ...matrix(op.matrix),
        at(op.out),
        op.continues ? 1 : 0,
        at(op.bias),
        at(op.residual),
        native(op),
      ];
    case 'active-outputs':
      return [
        op.rows,
        at(op.x),
        op.inputs,
        at(op.active),
        op.listBegin,
        op.listEnd,
        at(op.slots),
        ...matrix(op.matrix),
        at(op.out),
        op.outStride,
        at(op.bias),
        native(op),
      ];
    case 'retain-rows':
      return [at(op.active), ...rowIndex(op.index), at(op.hits)];
    case 'held-inputs':
      return [
        op.rows,
        at(op.x),
        at(op.active),
        ...rowIndex(op.index),
        at(op.held),
        op.outputs,
        ...matrix(op.matrix),
        at(op.out),
        at(op.bias),
        at(op.residual),
      ];
    case 'held-outputs':
      return [
        op.rows,
        at(op.x),
        op.inputs,
        at(op.active),
        ...rowIndex(op.index),
        at(op.held),
        ...matrix(op.matrix),
        at(op.out),
        op.outStride,
        at(op.bias),
      ];
    case 'guess-rows':
      return [at(op.set), ...rowIndex(op.index), at(op.held), ...matrix(op.matrix), at(op.guessed)];
    case 'greedy':
      return [op.rows, op.width, at(op.x), at(op.out)];
    case 'round-input':
      return [op.rows, at(op.x), ...copy(op.copy), ...roundedInput(op.out, op.rows, op.copy)];
    case 'certify':
      return [
        op.rows,
        ...copy(op.copy),
        ...roundedInput(op.input, op.rows, op.copy),
        at(op.bias),
        op.threshold,
        at(op.out),
      ];
    case 'activate':
      return [op.count, activationCodes[op.activation], op.threshold, at(op.x)];
    case 'gated-product':
      return [op.count, at(op.gate), at(op.up)];
    case 'add':
      return [op.count, at(op.a), at(op.b), at(op.out)];
    case 'norm':
      return [
        op.norm === 'layer' ? 0 : 1,
        op.rows,
        op.width,
        op.epsilon,
        at(op.x),
        at(op.gamma),
        at(op.beta),
        at(op.out),
      ];
    case 'rope':
      return [
        op.rows,
        op.heads,
        op.headDim,
        op.rotary,
        at(op.positions),
        at(op.cosines),
        at(op.sines),
        at(op.x),
      ];
    case 'store-kv':
      return [op.rows, at(op.positions), at(op.keys), at(op.values), ...kv(op.cache)];
    case 'attention':
      return [
        op.rows,
        op.heads,
        at(op.positions),
        op.scale,
        at(op.query),
        ...kv(op.cache),
        at(op.scratch),
        at(op.out),
      ];
  }
}

/** Read by no kernel of the CPU; programs that differ in it must differ. */
function native({ numerics }: { readonly numerics?: ProductNumerics }): number {
  return numerics === 'native' ? 1 : 0;
}

function at(span: Span | null): number {
  return span === null ? 0 : span.buffer.address + span.byteOffset;
}

/** Words: address, stored type, 0 input-major or 1 output-major, row stride. */
function matrix(value: Matrix): number[] {
  return [at(value.span), storedTypes[value.type], value.layout === 'input-major' ? 0 : 1, value.rowStride];
}

/** Words: neurons, places, 1 where they are given anew, address. */
function rowIndex({ neurons, places, replaces, span }: RowIndex): number[] {
  return [neurons, places, replaces ? 1 : 0, at(span)];
}

/**
 * Words: inputs, outputs, bits, 1 for groups, directions, direction exponent, records, floats of a record, codes, bytes of
 * their row, high bits, bytes of their row, group scales, bytes of their row, components, directions.
 */
function copy({ span, format, inputs, outputs, directions, directionExponent }: LowBitCopy): number[] {
  const layout = lowBitLayout(format, inputs, outputs, directions);
  const section = ({ byteOffset }: LowBitSection) => at(span) + byteOffset;
  return [
    inputs,
    outputs,
    format.bits,
    format.groups ? 1 : 0,
    directions,
    directionExponent,
    section(layout.records),
    layout.recordFloats,
    section(layout.codes),
    layout.codeRowBytes,
    section(layout.high),
    layout.highRowBytes,
    section(layout.groupScales),
    layout.groupRowBytes,
    section(layout.components),
    section(layout.directions),
  ];
}

/** Words: scalars, inputs, components. */
function roundedInput(span: Span, rows: number, { inputs, directions }: LowBitCopy): number[] {
  const layout = roundedInputLayout(rows, inputs, directions);
  return [layout.scalars, layout.inputs, layout.components].map(({ byteOffset }) => at(span) + byteOffset);
}

/** Words: stored type, keys, values, slots, KV heads, head dimension, capacity. */
function kv(cache: KvLayer): number[] {
  return [
    storedTypes[cache.type],
    at(cache.keys),
    at(cache.values),
    cache.slots,
    cache.kvHeads,
    cache.headDim,
    cache.capacity,
  ];
}
