import { type StoredType, storedBytes } from '../base/stored-type.js';
import type { ModelDescription } from './model-description.js';

/** Tensors of the weights file begin at multiples of this: a page, and the sector size of direct reads. */
export const weightsAlignment = 4096;

/** How a tensor of the checkpoint becomes one of the prepared form. */
export type PackKind = 'copy' | 'transpose' | 'widen';

/** One tensor of the weights file before anything is written: all that the description alone determines. */
export interface PlannedTensor {
  readonly id: string;
  readonly sourceTensor: string;
  readonly kind: PackKind;
  /** Of the source: `[rows, columns]` as the checkpoint stores it; a vector is one row. */
  readonly sourceShape: readonly [number, number];
  /** As stored in the weights file. */
  readonly type: StoredType;
  readonly shape: readonly number[];
  /** Added to each element of a vector in binary32. */
  readonly offset: 0 | 1;
  readonly byteOffset: number;
  readonly byteLength: number;
}

export interface WeightsPlan {
  readonly tensors: readonly PlannedTensor[];
  /** Of the whole weights file, a multiple of `weightsAlignment`. */
  readonly byteLength: number;
}

/**
 * Places every tensor of a model in the weights file: vectors, which are always resident, then tables, then matrices in
 * the order in which a forward pass uses them, so that a dense stream reads ahead in one direction.
 */
export function planWeights(description: ModelDescription): WeightsPlan {
  const tensors: PlannedTensor[] = [];
  let end = 0;
  const place = (tensor: Omit<PlannedTensor, 'byteOffset' | 'byteLength'>) => {
    const byteLength = tensor.shape.reduce((product, size) => product * size, storedBytes[tensor.type]);
    tensors.push({ ...tensor, byteOffset: end, byteLength });
    end = alignUp(end + byteLength);
  };
  for (const { id, width, offset, sourceTensor } of description.vectors) {
    const sourceShape = [1, width] as const;
    place({ id, sourceTensor, kind: 'widen', sourceShape, type: 'f32', shape: [width], offset });
  }
  for (const { id, rows, columns, type, sourceTensor } of description.tables) {
    const sourceShape = [rows, columns] as const;
    place({ id, sourceTensor, kind: 'copy', sourceShape, type, shape: [rows, columns], offset: 0 });
  }
  for (const { id, inputs, outputs, type, layout, sourceTensor } of description.matrices) {
    const sourceShape = [outputs, inputs] as const;
    const transposed = layout === 'input-major';
    const kind = transposed ? 'transpose' : 'copy';
    const shape = transposed ? [inputs, outputs] : [outputs, inputs];
    place({ id, sourceTensor, kind, sourceShape, type, shape, offset: 0 });
  }
  return { tensors, byteLength: end };
}

function alignUp(byteOffset: number): number {
  return Math.ceil(byteOffset / weightsAlignment) * weightsAlignment;
}
