import type { PlacedOp } from './ops.js';
import { encodeProgram } from './program.js';

const encoded = new WeakMap<readonly PlacedOp[], Float64Array>();

/** The program of a submission; that of a frozen list, which can come again, is encoded once. */
export function encodePlaced(ops: readonly PlacedOp[]): Float64Array {
  const known = encoded.get(ops);
  if (known !== undefined) return known;
  const words = encodeProgram(ops.map(({ op }) => op));
  if (Object.isFrozen(ops)) encoded.set(ops, words);
  return words;
}
