import { widenHalves } from '../../base/half.js';
import { type StoredType, storedBytes } from '../../base/stored-type.js';
import type { Span } from '../../memory/buffers.js';
import type { OracleMemory } from './oracle-memory.js';

/** Reads rows of stored weights as binary32. A returned row is valid until the next call. */
export type RowReader = (row: number) => Float32Array;

/** Rows of `width` elements that lie `rowStride` elements apart. */
export function storedRows(
  memory: OracleMemory,
  span: Span,
  type: StoredType,
  rowStride: number,
  width: number,
): RowReader {
  const bytes = memory.bytes(span);
  const start = (row: number): number => bytes.byteOffset + row * rowStride * storedBytes[type];
  if (type === 'f32') return (row) => new Float32Array(bytes.buffer, start(row), width);
  const widened = new Float32Array(width);
  return (row) => {
    widenHalves(type, new Uint16Array(bytes.buffer, start(row), width), widened);
    return widened;
  };
}
