import { widenStored } from '../../src/base/half.js';
import type { Checkpoint } from '../../src/checkpoint/checkpoint.js';
import { usableType } from '../../src/checkpoint/stored-tensor.js';
import type { StoredValues } from './resident-source.js';

/** Reads every tensor of a checkpoint, by the ids of its description; vectors are widened and offset. */
export async function readValues(checkpoint: Checkpoint): Promise<(id: string) => StoredValues> {
  const { matrices, tables, vectors } = checkpoint.description;
  const values = new Map<string, StoredValues>();
  for (const { id, sourceTensor } of [...matrices, ...tables]) {
    const tensor = checkpoint.tensor(sourceTensor);
    values.set(id, { type: usableType(tensor), bytes: await checkpoint.readTensor(tensor) });
  }
  for (const { id, sourceTensor, offset } of vectors) {
    const tensor = checkpoint.tensor(sourceTensor);
    const widened = widenStored(usableType(tensor), await checkpoint.readTensor(tensor));
    const floats = Float32Array.from(widened, (value) => value + offset);
    values.set(id, { type: 'f32', bytes: new Uint8Array(floats.buffer) });
  }
  return (id) => values.get(id)!;
}
