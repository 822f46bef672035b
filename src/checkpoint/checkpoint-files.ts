import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { InputError, SetupError } from '../base/errors.js';
import type { JsonValue } from '../base/json.js';
import { readJsonFile } from './json-file.js';
import { parseShardIndex, type ShardIndex } from './shard-index.js';

/** A file of a checkpoint folder that its digest covers. */
export interface CheckpointFile {
  readonly name: string;
  readonly path: string;
  readonly byteLength: number;
}

/** Which files hold the weights, and in which format. */
export interface WeightLayout {
  readonly format: 'safetensors' | 'torch';
  readonly files: readonly string[];
  readonly index: (ShardIndex & { readonly name: string }) | null;
}

/** In the order in which transformers looks, an index before the single file of its format. */
const layouts = [
  { format: 'safetensors', single: 'model.safetensors', index: 'model.safetensors.index.json' },
  { format: 'torch', single: 'pytorch_model.bin', index: 'pytorch_model.bin.index.json' },
] as const;

/** Files beside config and weights that decide what a model is given and when it stops. */
export const companionFiles: readonly string[] = [
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'vocab.json',
  'merges.txt',
  'special_tokens_map.json',
  'added_tokens.json',
  'tokenizer.model',
  'chat_template.jinja',
  'chat_template.json',
];

/** Reads config.json. Throws `SetupError` `checkpoint-missing`, `InputError` `file-missing`, or of the JSON. */
export async function readConfigFile(directory: string): Promise<JsonValue> {
  const kind = await stat(directory).catch((cause: unknown) => {
    throw new SetupError(
      'checkpoint-missing',
      `Opening the checkpoint "${directory}" failed: ${(cause as NodeJS.ErrnoException).code ?? String(cause)}, wanted is a folder with config.json and weights`,
      { directory },
      { cause },
    );
  });
  const config = kind.isDirectory() ? await readJsonFile(directory, 'config.json') : null;
  if (config === null) {
    throw new InputError(
      'file-missing',
      `Opening the checkpoint "${directory}" failed: ${kind.isDirectory() ? '"config.json" is absent' : 'it is not a folder'}, wanted is a folder with config.json and weights`,
      { directory, file: 'config.json' },
    );
  }
  return config;
}

/** Finds the weights. Throws `InputError` `weights-missing` naming every file that was looked for. */
export async function findWeights(directory: string): Promise<WeightLayout> {
  for (const { format, single, index } of layouts) {
    const json = await readJsonFile(directory, index);
    if (json !== null) {
      const shards = parseShardIndex(json, index);
      return { format, files: shards.files, index: { ...shards, name: index } };
    }
    if ((await sizeOf(directory, single)) !== null) return { format, files: [single], index: null };
  }
  const wanted = layouts.flatMap(({ single, index }) => [`"${index}"`, `"${single}"`]);
  throw new InputError(
    'weights-missing',
    `Opening the checkpoint "${directory}" failed: it holds no weights, wanted is one of ${wanted.join(', ')}`,
    { directory },
  );
}

/** Every file that the digest covers, sorted by name: configuration, index, weights, tokenizer. */
export async function listFiles(directory: string, layout: WeightLayout): Promise<CheckpointFile[]> {
  const names = [
    'config.json',
    ...layout.files,
    ...(layout.index === null ? [] : [layout.index.name]),
    ...companionFiles,
  ];
  const files: CheckpointFile[] = [];
  for (const name of new Set(names)) {
    const byteLength = await sizeOf(directory, name);
    if (byteLength !== null) files.push({ name, path: join(directory, name), byteLength });
  }
  return files.sort((a, b) => (a.name < b.name ? -1 : 1));
}

async function sizeOf(directory: string, name: string): Promise<number | null> {
  try {
    const { size } = await stat(join(directory, name));
    return size;
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw new InputError(
      'file-unreadable',
      `Opening "${name}" failed: ${code ?? String(cause)}`,
      { file: name },
      { cause },
    );
  }
}
