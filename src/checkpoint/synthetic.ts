import { open, readdir, statfs, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { makeFolders, storageError, systemCode, writeDirectoryAtomic } from '../base/atomic-file.js';
import { InterruptedError, SetupError } from '../base/errors.js';
import { type StoredType, storedBytes } from '../base/stored-type.js';
import { writeFully } from './matrix-pack.js';
import { removeLeftovers, temporarySibling } from './prepare-lock.js';
import {
  type SyntheticOptions,
  type SyntheticTensor,
  syntheticConfig,
  syntheticTensors,
} from './synthetic-opt.js';

/** Largest weights file; larger models are sharded. */
export const shardBytes = 2_000_000_000;

/** Bytes that are filled and written at a time; the most that is held, whatever the model. */
const chunkBytes = 4 * 1024 * 1024;

export interface MakeOptions extends SyntheticOptions {
  /** Absent or an empty folder. */
  readonly directory: string;
  readonly shardBytes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

interface Shard {
  readonly name: string;
  readonly tensors: readonly SyntheticTensor[];
  readonly byteLength: number;
}

/**
 * Writes an OPT checkpoint with seeded random weights in the Hugging Face layout (safetensors, no tokenizer), for tests
 * and benchmarks of any size; `syntheticTensors` says what its weights are. Equal options give equal bytes.
 * Returns the bytes of all weights. Throws `UsageError`, `SetupError` `disk-full`, `not-writable`, `directory-in-use`.
 */
export async function makeCheckpoint(options: MakeOptions): Promise<number> {
  const directory = resolve(options.directory);
  const shards = shardTensors(syntheticTensors(options), options.type, options.shardBytes ?? shardBytes);
  const totalBytes = shards.reduce((sum, { byteLength }) => sum + byteLength, 0);
  await makeFolders(dirname(directory), 'make', totalBytes);
  try {
    await removeLeftovers(directory);
    if (!(await isAbsentOrEmpty(directory))) throw inUse(directory);
    const { bavail, bsize } = await statfs(dirname(directory), { bigint: true });
    if (bavail * bsize < BigInt(totalBytes)) {
      throw new SetupError(
        'disk-full',
        `Cannot make "${directory}": ${totalBytes} bytes are needed, ${bavail * bsize} bytes are free`,
        { path: directory, neededBytes: String(totalBytes), freeBytes: String(bavail * bsize) },
      );
    }
  } catch (error) {
    throw storageError(error, 'make', directory, totalBytes);
  }
  let doneBytes = 0;
  const wrote = (byteLength: number) => {
    doneBytes += byteLength;
    options.onProgress?.(doneBytes, totalBytes);
    if (options.signal?.aborted === true) {
      throw new InterruptedError('interrupted', `Cannot make "${directory}": cancelled`, { directory });
    }
  };
  const written = await writeDirectoryAtomic(directory, {
    temporary: temporarySibling(directory),
    neededBytes: totalBytes,
    fill: async (folder) => {
      await writeJson(join(folder, 'config.json'), syntheticConfig(options));
      await writeJson(join(folder, 'generation_config.json'), {
        bos_token_id: 2,
        eos_token_id: 2,
        pad_token_id: 1,
      });
      for (const shard of shards) await writeShard(join(folder, shard.name), shard, options.type, wrote);
      if (shards.length > 1)
        await writeJson(join(folder, 'model.safetensors.index.json'), indexOf(shards, totalBytes));
    },
  });
  if (!written) throw inUse(directory);
  return totalBytes;
}

function inUse(directory: string): SetupError {
  return new SetupError(
    'directory-in-use',
    `Cannot make "${directory}": it holds files, an absent or empty folder is wanted`,
    {
      directory,
    },
  );
}

async function isAbsentOrEmpty(directory: string): Promise<boolean> {
  try {
    return (await readdir(directory)).length === 0;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return true;
    throw error;
  }
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

async function writeJson(path: string, value: Record<string, unknown>): Promise<void> {
  await writeFile(path, `${JSON.stringify(value, null, 2)}\n`);
}

/** https://github.com/huggingface/safetensors#format; the header is padded with spaces so that data begin at 8 n. */
async function writeShard(
  path: string,
  { tensors }: Shard,
  type: StoredType,
  wrote: (byteLength: number) => void,
): Promise<void> {
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
  const file = await open(path, 'wx');
  try {
    let position = 0;
    for (const bytes of [length, padded]) {
      writeFully(file.fd, bytes, position);
      position += bytes.byteLength;
    }
    const chunk = type === 'f32' ? new Uint32Array(chunkBytes / 4) : new Uint16Array(chunkBytes / 2);
    for (const tensor of tensors) {
      const elements = bytesOf(tensor, type) / storedBytes[type];
      for (let first = 0; first < elements; first += chunk.length) {
        const part = chunk.subarray(0, Math.min(chunk.length, elements - first));
        tensor.fill(part, first);
        const bytes = new Uint8Array(part.buffer, part.byteOffset, part.byteLength);
        writeFully(file.fd, bytes, position);
        position += bytes.byteLength;
        wrote(bytes.byteLength);
        await setImmediate();
      }
    }
  } finally {
    await file.close();
  }
}
