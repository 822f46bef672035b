import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './harness.js';

/** A copy of a checkpoint folder, to be spoilt. */
export function copyOf(checkpoint: string): string {
  const folder = join(temporaryFolder(), 'model');
  cpSync(checkpoint, folder, { recursive: true, dereference: true });
  return folder;
}

/** Changes the elements of one tensor of `model.safetensors` in place; values are F32, or raw bits of 16-bit types. */
export function editTensor(
  folder: string,
  name: string,
  change: (elements: Float32Array | Uint16Array, columns: number) => void,
): void {
  const path = join(folder, 'model.safetensors');
  const file = readFileSync(path);
  const headerLength = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerLength));
  const entry = header[name];
  if (entry === undefined) throw new Error(`no tensor "${name}" among ${Object.keys(header).join(', ')}`);
  const [begin, end] = entry.data_offsets as [number, number];
  const bytes = Uint8Array.from(file.subarray(8 + headerLength + begin, 8 + headerLength + end));
  const elements = entry.dtype === 'F32' ? new Float32Array(bytes.buffer) : new Uint16Array(bytes.buffer);
  change(elements, entry.shape.at(-1));
  file.set(bytes, 8 + headerLength + begin);
  writeFileSync(path, file);
}

export function editConfig(folder: string, changes: Readonly<Record<string, unknown>>): void {
  const path = join(folder, 'config.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...changes }));
}
