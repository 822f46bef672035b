import { InputError } from '../base/errors.js';
import { unpickle } from './pickle.js';
import { PickleDict } from './pickle-value.js';
import { elementCount, type StoredTensor } from './stored-tensor.js';
import { TorchTensor, torchHost } from './torch-values.js';
import type { WeightFile } from './weight-file.js';
import { readZipEntries, type ZipEntry, zipDataOffset } from './zip-entries.js';

/** Pickles of the largest public shards are below 1 MB: they hold names and shapes, not weights. */
const largestPickleBytes = 32 * 1024 * 1024;

/**
 * Reads which tensors a torch `.bin` file holds and where (torch.save's zip format: `<root>/data.pkl`, storages
 * in `<root>/data/<key>`). Weights are not loaded, nothing of the pickle is run. Throws `InputError` with a code that
 * begins with `zip-`, `pickle-` or `torch-`, naming the file and what is wrong.
 */
export async function readTorchBin(file: WeightFile): Promise<StoredTensor[]> {
  await refuseLegacyFormat(file);
  const entries = await readZipEntries(file);
  const pickle = findPickle(file, entries);
  const root = pickle.name.slice(0, -'data.pkl'.length);
  await checkByteOrder(file, entries.get(`${root}byteorder`));
  const bytes = await readEntry(file, pickle, largestPickleBytes);
  const state = unpickle(bytes, file.name, torchHost(file.name));
  if (!(state instanceof PickleDict)) {
    throw refuse('torch-malformed', file, 'its pickle is no dict of tensors');
  }
  const tensors: StoredTensor[] = [];
  const dataOffsets = new Map<string, number>();
  for (const [name, tensor] of state.entries) {
    if (typeof name !== 'string' || !(tensor instanceof TorchTensor)) continue;
    const entry = storageEntry(file, name, tensor, entries.get(`${root}data/${tensor.storage.key}`));
    let dataOffset = dataOffsets.get(entry.name);
    if (dataOffset === undefined) {
      dataOffset = await zipDataOffset(file, entry);
      dataOffsets.set(entry.name, dataOffset);
    }
    tensors.push(placeTensor(file, name, tensor, dataOffset));
  }
  return tensors;
}

/** Before torch 1.6, and with `_use_new_zipfile_serialization=False`, torch wrote pickles one after another, or a tar. */
async function refuseLegacyFormat(file: WeightFile): Promise<void> {
  const begin = new Uint8Array(Math.min(4, file.byteLength));
  await file.read(0, begin);
  if (begin[0] === 0x50 && begin[1] === 0x4b) return;
  if (begin[0] === 0x80) {
    throw refuse(
      'torch-legacy-format',
      file,
      'it is in the format of torch before 1.6, wanted is a zip archive: load it with torch and save it again, or convert it to safetensors',
    );
  }
  throw refuse('zip-malformed', file, 'it is no zip archive, wanted is what torch.save writes');
}

function findPickle(file: WeightFile, entries: ReadonlyMap<string, ZipEntry>): ZipEntry {
  const found = [...entries.values()].filter(({ name }) => /^([^/]+\/)?data\.pkl$/.test(name));
  const [pickle] = found;
  if (pickle === undefined || found.length > 1) {
    throw refuse(
      'torch-malformed',
      file,
      `it holds ${found.length} entries "<root>/data.pkl", wanted is one`,
    );
  }
  return pickle;
}

async function checkByteOrder(file: WeightFile, entry: ZipEntry | undefined): Promise<void> {
  if (entry === undefined) return;
  const order = Buffer.from(await readEntry(file, entry, 64)).toString('latin1');
  if (order !== 'little') {
    throw refuse('torch-byte-order', file, `its byte order is ${JSON.stringify(order)}, wanted is "little"`);
  }
}

async function readEntry(file: WeightFile, entry: ZipEntry, limit: number): Promise<Uint8Array> {
  if (entry.byteLength > limit) {
    throw refuse(
      'torch-malformed',
      file,
      `entry "${entry.name}" has ${entry.byteLength} bytes, at most ${limit} are read`,
    );
  }
  const offset = await zipDataOffset(file, entry);
  const bytes = new Uint8Array(entry.byteLength);
  await file.read(offset, bytes);
  return bytes;
}

function storageEntry(
  file: WeightFile,
  name: string,
  { storage }: TorchTensor,
  entry: ZipEntry | undefined,
): ZipEntry {
  const wanted = storage.elements * storage.elementBytes;
  if (entry === undefined) {
    throw refuse(
      'torch-missing-storage',
      file,
      `the storage "${storage.key}" of tensor "${name}" is absent`,
      name,
    );
  }
  if (entry.byteLength < wanted) {
    throw refuse(
      'torch-short-storage',
      file,
      `the storage "${storage.key}" of tensor "${name}" has ${entry.byteLength} bytes, wanted are ${wanted}`,
      name,
    );
  }
  return entry;
}

function placeTensor(file: WeightFile, name: string, tensor: TorchTensor, dataOffset: number): StoredTensor {
  const { storage, offset, shape, strides } = tensor;
  const count = elementCount(shape);
  const last =
    count === 0 ? offset : shape.reduce((at, size, axis) => at + (size - 1) * strides[axis]!, offset + 1);
  if (count === null || !(last <= storage.elements)) {
    throw refuse(
      'torch-short-storage',
      file,
      `tensor "${name}" of shape [${shape.join(', ')}] reaches beyond the ${storage.elements} elements of its storage "${storage.key}"`,
      name,
    );
  }
  return {
    name,
    dtype: storage.className,
    type: storage.type,
    shape,
    file: file.name,
    byteOffset: dataOffset + offset * storage.elementBytes,
    byteLength: count * storage.elementBytes,
    unreadable: isRowMajor(shape, strides)
      ? null
      : `its strides are [${strides.join(', ')}] for the shape [${shape.join(', ')}], wanted is a contiguous tensor`,
  };
}

/** As torch's `is_contiguous`: strides of dimensions of one element, and of empty tensors, do not matter. */
function isRowMajor(shape: readonly number[], strides: readonly number[]): boolean {
  if (shape.includes(0)) return true;
  let expected = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    if (shape[axis] === 1) continue;
    if (strides[axis] !== expected) return false;
    expected *= shape[axis]!;
  }
  return true;
}

function refuse(code: string, file: WeightFile, problem: string, tensor?: string): InputError {
  return new InputError(code, `Reading "${file.name}" failed: ${problem}`, {
    file: file.name,
    ...(tensor === undefined ? {} : { tensor }),
  });
}
