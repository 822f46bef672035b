import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type StoredType, storedBytes } from '../../../src/base/stored-type.js';
import type { ModelDescription } from '../../../src/checkpoint/model-description.js';
import { planWeights } from '../../../src/checkpoint/prepared-layout.js';
import type { PreparedModel, PreparedTensor } from '../../../src/checkpoint/prepared-model.js';
import { seededRandom } from './random.js';

/** Which neurons may be active: `on` in every token, `mixed` as the weights have it, `off` in none. */
export type NeuronState = 'on' | 'mixed' | 'off';

/**
 * Writes random weights in the prepared layout to a temporary file. Neurons that are off have zero columns in the first
 * projection or gate and a negative bias; neurons that are on have a large bias (plain FFNs only).
 */
export function writePrepared(
  description: ModelDescription,
  seed: number,
  neuronState: (layer: number, neuron: number) => NeuronState,
  nonFinite: ReadonlySet<string> = new Set(),
): PreparedModel {
  const random = seededRandom(seed);
  const plan = planWeights(description);
  const directory = mkdtempSync(join(tmpdir(), 'waybill-acquire-'));
  const path = join(directory, 'weights');
  const descriptor = openSync(path, 'w+');
  const table = description.tables[0]!;
  let tableValues: Float64Array | null = null;
  const byId = new Map<string, PreparedTensor>();
  const matrices = new Map(description.matrices.map((matrix) => [matrix.id, matrix]));
  for (const { id, type, shape, byteOffset, byteLength } of plan.tensors) {
    const columns = shape.at(-1)!;
    const count = byteLength / storedBytes[type];
    const values = new Float64Array(count).map(() => (random() - 0.5) * 0.7);
    const matrix = matrices.get(id);
    if (id === table.id) tableValues = values;
    if (matrix?.sourceTensor === table.sourceTensor) {
      // The head of a tied model is the token table, transposed.
      values.forEach((_, index) => {
        values[index] = tableValues![(index % columns) * table.columns + Math.floor(index / columns)]!;
      });
    }
    if (matrix?.role === 'first' || matrix?.role === 'gate') {
      for (let index = 0; index < count; index += 1) {
        if (neuronState(matrix.layer!, index % columns) === 'off') values[index] = 0;
      }
    }
    const layerOfBias = /^layers\.(\d+)\.first\.bias$/.exec(id)?.[1];
    if (layerOfBias !== undefined) {
      for (let neuron = 0; neuron < count; neuron += 1) {
        const state = neuronState(Number(layerOfBias), neuron);
        values[neuron] = state === 'off' ? -1 : state === 'on' ? 50 : values[neuron]!;
      }
    }
    if (nonFinite.has(id)) values[3] = Infinity;
    const bytes = encode(values, type);
    writeSync(descriptor, bytes, 0, bytes.byteLength, byteOffset);
    byId.set(id, { id, type, shape, byteOffset, byteLength, sha256: '', finite: !nonFinite.has(id) });
  }
  return {
    directory,
    description,
    manifestDigest: '0'.repeat(64),
    sourceDigest: '',
    sourceFiles: [],
    weightsFile: { path, descriptor, byteLength: plan.byteLength },
    tensor: (id) => byId.get(id)!,
    close: async () => {
      closeSync(descriptor);
      rmSync(directory, { recursive: true });
    },
  };
}

/** Truncates to BF16, and to F16 without subnormals: any valid bits serve. */
function encode(values: Float64Array, type: StoredType): Uint8Array {
  const floats = Float32Array.from(values);
  if (type === 'f32') return new Uint8Array(floats.buffer);
  const bits = new Uint32Array(floats.buffer);
  const halves = Uint16Array.from(bits, (word) => (type === 'bf16' ? word >>> 16 : halfBits(word)));
  return new Uint8Array(halves.buffer);
}

function halfBits(word: number): number {
  const sign = (word >>> 16) & 0x8000;
  const exponent = ((word >>> 23) & 0xff) - 127;
  if (exponent > 15) return sign | 0x7c00;
  if (exponent < -14) return sign;
  return sign | ((exponent + 15) << 10) | ((word >>> 13) & 0x3ff);
}
