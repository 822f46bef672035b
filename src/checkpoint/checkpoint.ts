import { DefectError, ExecutionError, InputError } from '../base/errors.js';
import {
  type CheckpointFile,
  findWeights,
  listFiles,
  readConfigFile,
  type WeightLayout,
} from './checkpoint-files.js';
import { describeModel } from './describe-model.js';
import { readJsonFile } from './json-file.js';
import type { ModelConfig } from './model-config.js';
import type { ModelDescription } from './model-description.js';
import { readModelConfig } from './read-config.js';
import { readSafetensors } from './safetensors.js';
import type { StoredTensor } from './stored-tensor.js';
import { readTorchBin } from './torch-bin.js';
import { openWeightFile, type WeightFile } from './weight-file.js';

/** An opened Hugging Face checkpoint folder. Weights stay on disk; reads are by position. */
export interface Checkpoint {
  readonly directory: string;
  readonly config: ModelConfig;
  readonly description: ModelDescription;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Every file that the digest covers, by name: configuration, index, weights, tokenizer. */
  readonly files: readonly CheckpointFile[];
  /** Throws `DefectError` for a name that no file holds. */
  tensor(name: string): StoredTensor;
  /** A whole tensor, as stored. Throws `ExecutionError` `short-read`. */
  readTensor(tensor: StoredTensor): Promise<Uint8Array>;
  /** Fills `target` from `byteOffset` of a tensor. Throws `ExecutionError` `short-read`, `DefectError` out of range. */
  readRange(tensor: StoredTensor, byteOffset: number, target: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens a checkpoint folder: config.json, generation_config.json, and the headers of the weights (safetensors or torch
 * `.bin`, single or sharded). Throws `SetupError` or `InputError` naming the file, field or tensor at fault; nothing
 * stays open then.
 */
export async function openCheckpoint(directory: string): Promise<Checkpoint> {
  const configJson = await readConfigFile(directory);
  const config = readModelConfig(configJson, await readJsonFile(directory, 'generation_config.json'));
  const layout = await findWeights(directory);
  const weightFiles = new Map<string, WeightFile>();
  const close = async () => {
    const open = [...weightFiles.values()];
    weightFiles.clear();
    await Promise.all(open.map((file) => file.close()));
  };
  try {
    for (const name of layout.files) weightFiles.set(name, await openWeightFile(directory, name));
    const tensors = await readTensors(layout, weightFiles);
    const readRange = (tensor: StoredTensor, byteOffset: number, target: Uint8Array) =>
      readInside(weightFiles, tensor, byteOffset, target);
    const checkpoint = {
      directory,
      config,
      tensors,
      files: await listFiles(directory, layout),
      tensor(name: string): StoredTensor {
        const tensor = tensors.get(name);
        if (tensor === undefined) throw new DefectError(`Tensor "${name}" is not in the checkpoint`);
        return tensor;
      },
      async readTensor(tensor: StoredTensor): Promise<Uint8Array> {
        const target = new Uint8Array(tensor.byteLength);
        await readRange(tensor, 0, target);
        return target;
      },
      readRange,
      close,
    };
    return { ...checkpoint, description: await describeModel(config, tensors, readRange) };
  } catch (cause) {
    await close();
    throw cause;
  }
}

async function readTensors(
  layout: WeightLayout,
  weightFiles: ReadonlyMap<string, WeightFile>,
): Promise<Map<string, StoredTensor>> {
  const tensors = new Map<string, StoredTensor>();
  const { index } = layout;
  for (const file of weightFiles.values()) {
    for (const tensor of await readFile(layout, file)) {
      // A tensor that the index gives to another file, or to none, does not count.
      if (index !== null && index.fileOf.get(tensor.name) !== file.name) continue;
      tensors.set(tensor.name, tensor);
    }
  }
  for (const [name, file] of index?.fileOf ?? []) {
    if (!tensors.has(name)) {
      throw new InputError(
        'tensor-missing',
        `Reading "${file}" failed: tensor "${name}" is absent, "${index!.name}" says that it lies there`,
        { tensor: name, file },
      );
    }
  }
  return tensors;
}

function readFile(layout: WeightLayout, file: WeightFile): Promise<StoredTensor[]> {
  return layout.format === 'torch' ? readTorchBin(file) : readSafetensors(file);
}

async function readInside(
  weightFiles: ReadonlyMap<string, WeightFile>,
  tensor: StoredTensor,
  byteOffset: number,
  target: Uint8Array,
): Promise<void> {
  if (!(byteOffset >= 0 && byteOffset + target.byteLength <= tensor.byteLength)) {
    throw new DefectError(`A read of tensor "${tensor.name}" lies outside it`, {
      byteOffset,
      byteLength: target.byteLength,
      tensorBytes: tensor.byteLength,
    });
  }
  const file = weightFiles.get(tensor.file);
  if (file === undefined) {
    throw new ExecutionError(
      'checkpoint-closed',
      `Reading tensor "${tensor.name}" failed: the checkpoint is closed`,
      {
        tensor: tensor.name,
      },
    );
  }
  await file.read(tensor.byteOffset + byteOffset, target);
}
