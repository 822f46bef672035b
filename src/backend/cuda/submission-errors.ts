import { DefectError, NumericsError, type WaybillError } from '../../base/errors.js';
import type { PlacedOp } from '../ops.js';
import { statusWords } from './launch.js';
import { nativeProduct } from './plan-native.js';

/** Codes of cuda/numbers.cuh. */
const failures = { kvOverflow: 1, indexOutOfRange: 2, activationOverflow: 3 } as const;

/** Status words of the ops that can report a failure: gathers, stores into an F16 cache, native products. */
export function fallibleOps(ops: readonly PlacedOp[]): number[] {
  const indices: number[] = [];
  ops.forEach(({ op }, index) => {
    if (
      op.kind === 'gather' ||
      (op.kind === 'store-kv' && op.cache.type === 'f16') ||
      nativeProduct(op) !== null
    )
      indices.push(index);
  });
  return indices;
}

/** The first failure that a finished submission left, taken out of the status words; null where there is none. */
export function takeFailure(
  status: Uint32Array,
  ops: readonly PlacedOp[],
  fallible: readonly number[],
): WaybillError | null {
  let first: WaybillError | null = null;
  for (const index of fallible) {
    const code = status[index % statusWords]!;
    if (code === 0) continue;
    status[index % statusWords] = 0;
    first ??= failureOf(code, ops[index]!.label);
  }
  return first;
}

function failureOf(code: number, label: string): WaybillError {
  switch (code) {
    case failures.kvOverflow:
      return new NumericsError(
        'kv-overflow',
        `Cannot store keys and values at "${label}": a finite value is too large for F16, use --kv f32`,
        { label },
      );
    case failures.activationOverflow:
      return new NumericsError(
        'activation-overflow',
        `Cannot round the inputs of "${label}" to the type of its weights: a finite value is too large, use --numerics portable`,
        { label },
      );
    case failures.indexOutOfRange:
      return new DefectError(`Op "${label}" gathers a row outside its table`, { label });
    default:
      return new DefectError(`Op "${label}" failed with unknown code ${code}`, { label });
  }
}
