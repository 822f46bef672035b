import { readFileSync } from 'node:fs';
import { join } from 'node:path';

interface HeaderEntry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Tensors of safetensors files by name, read by the format's definition and by nothing of the product. */
export function sourceTensors(folder: string, files: readonly string[]) {
  const tensors = new Map<string, { dtype: string; shape: number[]; bytes: Buffer }>();
  for (const file of files) {
    const data = readFileSync(join(folder, file));
    const headerEnd = 8 + Number(data.readBigUInt64LE(0));
    const header = JSON.parse(data.subarray(8, headerEnd).toString('utf8')) as Record<string, HeaderEntry>;
    for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
      if (name === '__metadata__') continue;
      const bytes = data.subarray(headerEnd + offsets[0], headerEnd + offsets[1]);
      tensors.set(name, { dtype, shape, bytes });
    }
  }
  return tensors;
}

/** Bytes of the `[columns, rows]` transpose, one element at a time. */
export function transposed(bytes: Uint8Array, rows: number, columns: number, elementBytes: number): Buffer {
  const result = Buffer.alloc(rows * columns * elementBytes);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const from = (row * columns + column) * elementBytes;
      const to = (column * rows + row) * elementBytes;
      for (let byte = 0; byte < elementBytes; byte++) result[to + byte] = bytes[from + byte]!;
    }
  }
  return result;
}
