import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { JsonValue } from '../../src/base/json.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import { describeOpt } from '../../src/checkpoint/opt-description.js';
import { planWeights } from '../../src/checkpoint/prepared-layout.js';
import type { PreparedModel, PreparedTensor } from '../../src/checkpoint/prepared-model.js';
import { readModelConfig } from '../../src/checkpoint/read-config.js';
import type { StoredTensor } from '../../src/checkpoint/stored-tensor.js';
import {
  type SyntheticOptions,
  type SyntheticShape,
  type SyntheticTensor,
  syntheticConfig,
  syntheticTensors,
} from '../../src/checkpoint/synthetic-opt.js';
import { roomFor, writeTransposed } from './shape-model.js';

/** How neurons are used: Zipf's exponent, and the share of inputs that neighbouring tokens have in common. */
export interface Usage {
  readonly exponent: number;
  readonly positionShare: number;
}

export interface ZipfModel {
  readonly prepared: PreparedModel;
  /** What usage is in: F32 biases of first projections, and the position table in binary16. */
  usageTensors(usage: Usage): Map<string, Uint8Array>;
  remove(): void;
}

/** More than a matrix of a layer has. */
const poolElements = 1 << 25;

/**
 * What `scripts/make-checkpoint.mjs --zipf E --position-share S` writes, in the prepared layout and at once: independent weights
 * need no transposition, and matrices of a kind are runs of one pool of them, each from another place on.
 */
export function writeZipf(shape: SyntheticShape, usage: Usage): ZipfModel {
  const halves = tensorsOf(shape, usage, 'f16');
  const floats = tensorsOf(shape, usage, 'f32');
  const description = descriptionOf(shape, halves);
  const plan = planWeights(description);
  const directory = mkdtempSync(join(roomFor(plan.byteLength), 'waybill-zipf-'));
  const path = join(directory, 'weights');
  const descriptor = openSync(path, 'w+');
  const pools = new Map<string, Uint8Array>();
  let from = 0;
  const byId = new Map<string, PreparedTensor>();
  const bySource = new Map<string, PreparedTensor>();
  for (const { id, sourceTensor, type, shape: sizes, byteOffset, byteLength } of plan.tensors) {
    const tensor = { id, type, shape: sizes, byteOffset, byteLength, sha256: '', finite: true } as const;
    byId.set(id, tensor);
    const twin = bySource.get(sourceTensor);
    bySource.set(sourceTensor, tensor);
    if (twin !== undefined) {
      writeTransposed(descriptor, twin, byteOffset);
      continue;
    }
    const made = (type === 'f32' ? floats : halves).get(sourceTensor);
    if (made === undefined) throw new RangeError(`Cannot write "${id}": there is no "${sourceTensor}"`);
    if (sizes.length === 1 || id === 'position-embedding') {
      writeSync(descriptor, filled(made, type, 0, byteLength / bytesOf(type)), 0, byteLength, byteOffset);
      continue;
    }
    const kind = kindOf(sourceTensor);
    const pool = pools.get(kind) ?? filled(made, type, 0, poolElements);
    pools.set(kind, pool);
    for (let done = 0; done < byteLength; ) {
      const length = Math.min(pool.byteLength - from, byteLength - done);
      writeSync(descriptor, pool, from, length, byteOffset + done);
      done += length;
      from = (from + length) % pool.byteLength;
    }
    from = (from + 2 * 1_000_003) % pool.byteLength;
  }
  return {
    prepared: {
      directory,
      description,
      manifestDigest: '',
      sourceDigest: '0'.repeat(64),
      sourceFiles: [],
      weightsFile: { path, descriptor, byteLength: plan.byteLength },
      tensor: (id) => byId.get(id)!,
      close: async () => {}, // several arms share it
    },
    usageTensors: (other) => {
      const [positions, biases] = [tensorsOf(shape, other, 'f16'), tensorsOf(shape, other, 'f32')];
      const found = new Map<string, Uint8Array>();
      for (const { id, sourceTensor, type, byteLength } of plan.tensors) {
        if (!id.endsWith('first.bias') && id !== 'position-embedding') continue;
        const made = (type === 'f32' ? biases : positions).get(sourceTensor)!;
        found.set(id, filled(made, type, 0, byteLength / bytesOf(type)));
      }
      return found;
    },
    remove: () => {
      closeSync(descriptor);
      rmSync(directory, { recursive: true });
    },
  };
}

/** As a checkpoint of these tensors is described. */
function descriptionOf(shape: SyntheticShape, made: ReadonlyMap<string, SyntheticTensor>): ModelDescription {
  const config = readModelConfig(syntheticConfig({ shape, type: 'f16', active, seed: 1 }) as JsonValue, null);
  if (config.family !== 'opt') throw new RangeError('Cannot describe the model: it is no OPT');
  const stored = Array.from(made.values(), ({ name, shape: sizes }): [string, StoredTensor] => [
    name,
    {
      name,
      dtype: 'F16',
      type: 'f16',
      shape: sizes,
      file: '',
      byteOffset: 0,
      byteLength: sizes.reduce((product, size) => product * size, 2),
      unreadable: null,
    },
  ]);
  return describeOpt(config, new Map(stored), false);
}

const active = 0.034;

/** Weights of a kind have one deviation. */
function kindOf(sourceTensor: string): string {
  const module = /(\w+)\.weight$/.exec(sourceTensor)?.[1] ?? sourceTensor;
  return /^([qkv]_proj|fc1)$/.test(module) ? 'unit' : module;
}

function tensorsOf(
  shape: SyntheticShape,
  { exponent, positionShare }: Usage,
  type: SyntheticOptions['type'],
): Map<string, SyntheticTensor> {
  const tensors = syntheticTensors({
    shape,
    active,
    seed: 1,
    type,
    popularity: { kind: 'zipf', exponent },
    positionShare,
  });
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

function bytesOf(type: PreparedTensor['type']): number {
  return type === 'f32' ? 4 : 2;
}

function filled(
  { fill }: SyntheticTensor,
  type: PreparedTensor['type'],
  first: number,
  count: number,
): Uint8Array {
  const target = type === 'f32' ? new Uint32Array(count) : new Uint16Array(count);
  fill(target, first);
  return new Uint8Array(target.buffer);
}
