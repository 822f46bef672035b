import { createHash } from 'node:crypto';
import { littleEndianBytes } from '../base/digest.js';
import { widenStored } from '../base/half.js';
import { type StoredType, storedBytes } from '../base/stored-type.js';
import { type Packed, type PackTarget, type TensorReader, writeFully } from './matrix-pack.js';
import { NonFiniteSearch } from './non-finite.js';

/** Writes a vector widened to F32, exactly, with `offset` added to each element in binary32 (layernorm1p). */
export async function packVector(
  read: TensorReader,
  width: number,
  type: StoredType,
  offset: 0 | 1,
  target: PackTarget,
): Promise<Packed> {
  const stored = new Uint8Array(width * storedBytes[type]);
  await read(0, stored);
  const search = new NonFiniteSearch(type, width);
  search.scan(stored, 0);
  const widened = widenStored(type, stored);
  // A Float32Array element rounds what is stored in it: one binary32 addition each.
  if (offset !== 0) for (let index = 0; index < width; index++) widened[index]! += offset;
  const bytes = littleEndianBytes(widened);
  writeFully(target.descriptor, bytes, target.byteOffset);
  target.wrote(bytes.byteLength);
  return { sha256: createHash('sha256').update(bytes).digest('hex'), nonFinite: search.result };
}
