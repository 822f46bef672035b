import { type StoredType, storedBytes } from '../base/stored-type.js';
import {
  type SyntheticOptions,
  type SyntheticTensor,
  syntheticConfig,
  syntheticTensors,
} from './synthetic-opt.js';

/** Largest weights file; larger models are sharded. */
export const shardBytes = 2_000_000_000;

/** Bytes that are filled at a time; the most that is held, whatever the model. */
const chunkBytes = 4 * 1024 * 1024;

/** A file of a synthetic checkpoint, as it will lie on disk. */
export interface SyntheticFile {
  readonly name: string;
  /** Of its weights; 0 for a file without. */
  readonly weightBytes: number;
  /** Its bytes from the first to the last. A piece is valid until the next one is asked for. */
  pieces(): Iterable<Uint8Array>;
}

/** All files of a synthetic checkpoint, in the order in which they are written. Throws as `syntheticTensors`. */
export function syntheticFiles(
  options: SyntheticOptions & { readonly shardBytes?: number | undefined },
): SyntheticFile[] {
  const shards = shardTensors(syntheticTensors(options), options.type, options.shardBytes ?? shardBytes);
  const total = shards.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return [
    jsonFile('config.json', syntheticConfig(options)),
    jsonFile('generation_config.json', { bos_token_id: 2, eos_token_id: 2, pad_token_id: 1 }),
    ...shards.map((shard) => ({
      name: shard.name,
      weightBytes: shard.byteLength,
      pieces: () => shardPieces(shard, options.type),
    })),
    ...(shards.length > 1 ? [jsonFile('model.safetensors.index.json', indexOf(shards, total))] : []),
  ];
}

interface Shard {
  readonly name: string;
  readonly tensors: readonly SyntheticTensor[];
  readonly byteLength: number;
}

function shardTensors(tensors: readonly SyntheticTensor[], type: StoredType, limit: number): Shard[] {
  const groups: { tensors: SyntheticTensor[]; byteLength: number }[] = [];
  for (const tensor of tensors) {
    const byteLength = bytesOf(tensor, type);
    const last = groups.at(-1);
    if (last === undefined || last.byteLength + byteLength > limit)
      groups.push({ tensors: [tensor], byteLength });
    else {
      last.tensors.push(tensor);
      last.byteLength += byteLength;
    }
  }
  const pad = (value: number) => String(value).padStart(5, '0');
  return groups.map((group, index) => ({
    ...group,
    name:
      groups.length === 1
        ? 'model.safetensors'
        : `model-${pad(index + 1)}-of-${pad(groups.length)}.safetensors`,
  }));
}

function bytesOf({ shape }: SyntheticTensor, type: StoredType): number {
  return shape.reduce((product, size) => product * size, storedBytes[type]);
}

function indexOf(shards: readonly Shard[], totalBytes: number): Record<string, unknown> {
  const entries = shards.flatMap(({ name: file, tensors }) =>
    tensors.map(({ name }) => [name, file] as const),
  );
  return { metadata: { total_size: totalBytes }, weight_map: Object.fromEntries(entries) };
}

function jsonFile(name: string, value: Record<string, unknown>): SyntheticFile {
  const bytes = Buffer.from(`${JSON.stringify(value, null, 2)}\n`, 'utf8');
  return { name, weightBytes: 0, pieces: () => [bytes] };
}

/** https://github.com/huggingface/safetensors#format; the header is padded with spaces so that data begin at 8 n. */
function* shardPieces({ tensors }: Shard, type: StoredType): Generator<Uint8Array> {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let end = 0;
  for (const tensor of tensors) {
    const begin = end;
    end += bytesOf(tensor, type);
    header[tensor.name] = { dtype: type.toUpperCase(), shape: tensor.shape, data_offsets: [begin, end] };
  }
  const text = JSON.stringify(header);
  const padded = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8, ' '), 'utf8');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.byteLength));
  yield Buffer.concat([length, padded]);
  const chunk = type === 'f32' ? new Uint32Array(chunkBytes / 4) : new Uint16Array(chunkBytes / 2);
  for (const tensor of tensors) {
    const elements = bytesOf(tensor, type) / storedBytes[type];
    for (let first = 0; first < elements; first += chunk.length) {
      const part = chunk.subarray(0, Math.min(chunk.length, elements - first));
      tensor.fill(part, first);
      yield new Uint8Array(part.buffer, part.byteOffset, part.byteLength);
    }
  }
}
