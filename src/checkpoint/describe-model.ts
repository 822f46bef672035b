import { headTensor } from './description-builder.js';
import { describeLlama, llamaPrefixes } from './llama-description.js';
import type { ModelConfig } from './model-config.js';
import type { ModelDescription } from './model-description.js';
import { describeOpt, optPrefixes } from './opt-description.js';
import type { StoredTensor } from './stored-tensor.js';

type ReadRange = (tensor: StoredTensor, byteOffset: number, target: Uint8Array) => Promise<void>;

/**
 * Finds and checks every tensor that the configuration calls for. Reads weights only to compare a stored head with a
 * token table that the configuration ties it to. Throws `InputError` naming the tensor.
 */
export async function describeModel(
  config: ModelConfig,
  tensors: ReadonlyMap<string, StoredTensor>,
  readRange: ReadRange,
): Promise<ModelDescription> {
  const prefixes = config.family === 'opt' ? optPrefixes : llamaPrefixes;
  const head = tensors.get(headTensor);
  const table = prefixes.map((prefix) => tensors.get(`${prefix}embed_tokens.weight`)).find((found) => found);
  const headDiffers =
    config.tied && head !== undefined && table !== undefined && (await differ(head, table, readRange));
  return config.family === 'opt'
    ? describeOpt(config, tensors, headDiffers)
    : describeLlama(config, tensors, headDiffers);
}

const chunkBytes = 1024 * 1024;

/** Compares stored bytes in step, stopping at the first difference; equal places in one file need no read. */
async function differ(a: StoredTensor, b: StoredTensor, readRange: ReadRange): Promise<boolean> {
  if (a.byteLength !== b.byteLength || a.dtype !== b.dtype) return true;
  if (a.unreadable !== null || b.unreadable !== null) return true;
  if (a.file === b.file && a.byteOffset === b.byteOffset) return false;
  const length = Math.min(chunkBytes, a.byteLength);
  const left = Buffer.allocUnsafe(length);
  const right = Buffer.allocUnsafe(length);
  for (let at = 0; at < a.byteLength; at += length) {
    const part = Math.min(length, a.byteLength - at);
    await Promise.all([readRange(a, at, left.subarray(0, part)), readRange(b, at, right.subarray(0, part))]);
    if (left.compare(right, 0, part, 0, part) !== 0) return true;
  }
  return false;
}
