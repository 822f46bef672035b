import { InputError } from '../base/errors.js';
import { companionFiles } from './checkpoint-files.js';
import type { HubFile } from './hub-client.js';

/** What of a repository is fetched: small files first, so that a snapshot with all weights has everything else too. */
export interface HubSelection {
  readonly small: readonly HubFile[];
  /** The index of the shards, where the weights are sharded; it is read before they are known. */
  readonly index: HubFile | null;
  /** The one file of weights, where they are not sharded. */
  readonly single: HubFile | null;
}

/** safetensors before torch, an index before a single file: as `findWeights` looks in a folder. */
const layouts = [
  { single: 'model.safetensors', index: 'model.safetensors.index.json' },
  { single: 'pytorch_model.bin', index: 'pytorch_model.bin.index.json' },
];

const otherFormats = /\.(?:gguf|onnx|h5|msgpack|tflite|ot|pth|safetensors|bin)$/;

/** Chooses config, tokenizer and one set of weights. Throws `InputError`: `hub-config-missing`, `hub-weights-missing`. */
export function selectFiles(files: readonly HubFile[], model: string): HubSelection {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const config = byPath.get('config.json');
  if (config === undefined) {
    throw new InputError(
      'hub-config-missing',
      `Fetching "${model}" failed: the repository has no "config.json", wanted is a model in the Hugging Face layout`,
      { model },
    );
  }
  const small = [config, ...companionFiles.flatMap((name) => byPath.get(name) ?? [])];
  for (const layout of layouts) {
    const index = byPath.get(layout.index) ?? null;
    const single = byPath.get(layout.single) ?? null;
    if (index !== null) return { small, index, single: null };
    if (single !== null) return { small, index: null, single };
  }
  const others = files.map((file) => file.path).filter((path) => otherFormats.test(path));
  const found =
    others.length === 0
      ? ''
      : `, it has ${others
          .slice(0, 3)
          .map((path) => `"${path}"`)
          .join(', ')}`;
  throw new InputError(
    'hub-weights-missing',
    `Fetching "${model}" failed: the repository has no weights that are read, wanted is "model.safetensors" or "pytorch_model.bin" or their shards${found}`,
    { model, others },
  );
}

/** The shards that an index names. Throws `InputError` `hub-shard-missing`. */
export function selectShards(files: readonly HubFile[], names: readonly string[], index: string): HubFile[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  return names.map((name) => {
    const file = byPath.get(name);
    if (file !== undefined) return file;
    throw new InputError(
      'hub-shard-missing',
      `Fetching the weights failed: "${index}" names "${name}", which the repository lacks`,
      { index, shard: name },
    );
  });
}
