import { exp32, gelu32, geluTanh32, quickGelu32, sigmoid32, silu32, tanh32 } from '../../base/elementary.js';
import type { ActivationKind } from '../../checkpoint/model-config.js';
import type { ActivateOp, AddOp, GatedProductOp } from '../ops.js';
import type { OracleMemory } from './oracle-memory.js';

const f = Math.fround;

export function activate(memory: OracleMemory, op: ActivateOp): void {
  const x = memory.floats(op.x);
  const apply = activation(op.activation, f(op.threshold));
  for (let index = 0; index < op.count; index++) x[index] = positiveZero(apply(x[index]!));
}

/** Each activation up to the sign of a zero result. */
function activation(kind: ActivationKind, threshold: number): (x: number) => number {
  switch (kind) {
    case 'relu':
      return relu;
    case 'relu2':
      return (x) => f(relu(x) * relu(x));
    case 'fatrelu':
      return (x) => (x <= threshold ? 0 : x);
    case 'silu':
      return silu32;
    case 'gelu':
      return gelu32;
    case 'gelu_tanh':
      return geluTanh32;
    case 'quick_gelu':
      return quickGelu32;
    case 'sigmoid':
      return sigmoid32;
    case 'tanh':
      return tanh32;
    case 'identity':
      return (x) => x;
  }
}

function relu(x: number): number {
  if (x <= 0) return 0;
  return x; // NaN too
}

function positiveZero(y: number): number {
  return y === 0 ? 0 : y;
}

export function gatedProduct(memory: OracleMemory, op: GatedProductOp): void {
  const gate = memory.floats(op.gate);
  const up = memory.floats(op.up);
  for (let index = 0; index < op.count; index++) {
    const factor = gate[index]!;
    gate[index] = factor === 0 ? 0 : positiveZero(f(factor * up[index]!));
  }
}

export function add(memory: OracleMemory, op: AddOp): void {
  const a = memory.floats(op.a);
  const b = memory.floats(op.b);
  const out = memory.floats(op.out);
  for (let index = 0; index < op.count; index++) out[index] = f(a[index]! + b[index]!);
}

/** exp of every difference to `m`, in place. */
export function exponentials(values: Float32Array, m: number): void {
  for (let index = 0; index < values.length; index++) values[index] = exp32(f(values[index]! - m));
}
