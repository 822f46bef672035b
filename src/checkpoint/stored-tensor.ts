import { InputError } from '../base/errors.js';
import { type StoredType, storedBytes } from '../base/stored-type.js';

/** A tensor as it lies in a checkpoint file: row-major, without gaps, little-endian. */
export interface StoredTensor {
  readonly name: string;
  /** As the file spells it: `F16`, `I64`, `HalfStorage`. */
  readonly dtype: string;
  /** Null for a type that Waybill does not compute with; such a tensor may lie in a file, but not be used. */
  readonly type: StoredType | null;
  readonly shape: readonly number[];
  /** File name inside the checkpoint folder. */
  readonly file: string;
  /** From the start of the file. */
  readonly byteOffset: number;
  readonly byteLength: number;
  /** Why the bytes cannot be read as a row-major tensor (strided views of `.bin` files), else null. */
  readonly unreadable: string | null;
}

/** Throws `InputError` `tensor-type` or `tensor-layout` where a needed tensor cannot be read. */
export function usableType(tensor: StoredTensor): StoredType {
  if (tensor.type === null) {
    throw new InputError(
      'tensor-type',
      `Reading tensor "${tensor.name}" of "${tensor.file}" failed: its type is ${JSON.stringify(tensor.dtype)}, F32, F16 or BF16 is wanted`,
      { tensor: tensor.name, file: tensor.file, dtype: tensor.dtype },
    );
  }
  if (tensor.unreadable !== null) {
    throw new InputError(
      'tensor-layout',
      `Reading tensor "${tensor.name}" of "${tensor.file}" failed: ${tensor.unreadable}`,
      { tensor: tensor.name, file: tensor.file },
    );
  }
  return tensor.type;
}

/** Elements of a shape; null where the product passes 2^53. */
export function elementCount(shape: readonly number[]): number | null {
  // A zero anywhere makes the tensor empty however large the other dimensions are.
  if (shape.includes(0)) return 0;
  let count = 1;
  for (const dimension of shape) {
    count *= dimension;
    if (!Number.isSafeInteger(count)) return null;
  }
  return count;
}

/** Bytes of a tensor of this type and shape; null where the count passes 2^53. */
export function tensorBytes(type: StoredType, shape: readonly number[]): number | null {
  const count = elementCount(shape);
  const bytes = count === null ? Number.NaN : count * storedBytes[type];
  return Number.isSafeInteger(bytes) ? bytes : null;
}
