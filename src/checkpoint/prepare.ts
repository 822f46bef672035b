import { open, readdir, rm, statfs, writeFile } from 'node:fs/promises';
import { endianness } from 'node:os';
import { dirname, join } from 'node:path';
import { makeFolders, storageError, systemCode, writeDirectoryAtomic } from '../base/atomic-file.js';
import { formatByteSize } from '../base/byte-size.js';
import { sha256Hex } from '../base/digest.js';
import { DefectError, InputError, InterruptedError, SetupError } from '../base/errors.js';
import type { Checkpoint } from './checkpoint.js';
import { PackBuffers, type Packed, packCopy, packTransposed } from './matrix-pack.js';
import { moveAside, removeLeftovers, temporarySibling } from './prepare-lock.js';
import { type PlannedTensor, planWeights, weightsAlignment } from './prepared-layout.js';
import {
  encodeManifest,
  type ManifestTensor,
  manifestDigestLine,
  manifestFormat,
  manifestVersion,
  type PreparedManifest,
  preparedNames,
} from './prepared-manifest.js';
import { type SourceFile, sourceDigest, sourceStamps } from './source-digest.js';
import { usableType } from './stored-tensor.js';
import { packVector } from './vector-pack.js';

export interface PackOptions {
  readonly directory: string;
  readonly files: readonly SourceFile[];
  /** A directory of the prepared form that lies there already is replaced. */
  readonly replace: boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  /** Bytes of packing buffers; `packBufferBytes` unless a test wants many tiles of a small tensor. */
  readonly bufferBytes?: number | undefined;
}

/** Room for the manifest and for what the file system needs for itself. */
const spareBytes = 4 * 1024 * 1024;

/**
 * Packs a checkpoint into a prepared directory, which appears whole or not at all (docs/formats/prepared.md). The
 * caller holds the prepare lock. Memory is bounded by `packBufferBytes`, whatever the model.
 * Throws `SetupError` `disk-full` (before the first byte where the system knows), `not-writable`, `directory-in-use`;
 * `InputError` `source-changing`; `InterruptedError`.
 */
export async function packDirectory(checkpoint: Checkpoint, options: PackOptions): Promise<void> {
  const { directory, signal } = options;
  if (endianness() !== 'LE') {
    throw new SetupError(
      'big-endian',
      'Cannot prepare weights: this machine is big-endian, little-endian is needed',
    );
  }
  throwIfAborted(signal, directory);
  const plan = planWeights(checkpoint.description);
  const neededBytes = plan.byteLength + spareBytes;
  await makeFolders(dirname(directory), 'prepare in', neededBytes);
  if (!options.replace && !(await isAbsentOrEmpty(directory))) throw inUse(directory);
  await removeLeftovers(directory);
  await requireSpace(directory, neededBytes);
  const names = options.files.map(({ name }) => name);
  const before = await sourceStamps(checkpoint.directory, names);
  const fill = async (temporary: string) => {
    const tensors = await writeWeights(checkpoint, plan, join(temporary, preparedNames.weights), options);
    const after = await sourceStamps(checkpoint.directory, names);
    const changed = names.find((name) => before.get(name) !== after.get(name));
    if (changed !== undefined) {
      throw new InputError(
        'source-changing',
        `Cannot prepare "${checkpoint.directory}": "${changed}" was written to meanwhile`,
        { file: changed, folder: checkpoint.directory },
      );
    }
    const manifest = encodeManifest(describePacked(checkpoint, options.files, plan.byteLength, tensors));
    await writeFile(join(temporary, preparedNames.manifest), manifest);
    await writeFile(join(temporary, preparedNames.digest), manifestDigestLine(sha256Hex(manifest)));
    throwIfAborted(signal, directory);
    if (options.replace) setAside = await moveAside(directory);
  };
  let setAside: string | null = null;
  let written: boolean;
  try {
    written = await writeDirectoryAtomic(directory, {
      temporary: temporarySibling(directory),
      neededBytes,
      fill,
    });
  } finally {
    if (setAside !== null) await rm(setAside, { recursive: true, force: true });
  }
  if (!written) throw inUse(directory);
}

async function isAbsentOrEmpty(directory: string): Promise<boolean> {
  try {
    return (await readdir(directory)).length === 0;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return true;
    if (systemCode(error) === 'ENOTDIR') return false;
    throw storageError(error, 'prepare', directory, 0);
  }
}

function inUse(directory: string): SetupError {
  return new SetupError(
    'directory-in-use',
    `Cannot prepare into "${directory}": it holds something else, an absent or empty folder is wanted`,
    { directory },
  );
}

async function requireSpace(directory: string, neededBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(directory), { bigint: true });
  const freeBytes = bavail * bsize;
  if (freeBytes >= BigInt(neededBytes)) return;
  throw new SetupError(
    'disk-full',
    `Cannot prepare "${directory}": ${neededBytes} bytes (${formatByteSize(neededBytes)}) are needed, ${freeBytes} bytes (${formatByteSize(Number(freeBytes))}) are free`,
    { path: directory, neededBytes: String(neededBytes), freeBytes: String(freeBytes) },
  );
}

async function writeWeights(
  checkpoint: Checkpoint,
  plan: ReturnType<typeof planWeights>,
  path: string,
  { signal, onProgress, bufferBytes, directory }: PackOptions,
): Promise<ManifestTensor[]> {
  const buffers = new PackBuffers(bufferBytes);
  const totalBytes = plan.tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  let doneBytes = 0;
  const wrote = (byteLength: number) => {
    doneBytes += byteLength;
    onProgress?.(doneBytes, totalBytes);
    throwIfAborted(signal, directory);
  };
  const file = await open(path, 'wx+');
  try {
    const tensors: ManifestTensor[] = [];
    for (const tensor of plan.tensors) {
      const target = { descriptor: file.fd, byteOffset: tensor.byteOffset, wrote };
      const packed = await packTensor(checkpoint, tensor, target, buffers);
      tensors.push(manifestTensor(tensor, packed));
    }
    await file.truncate(plan.byteLength); // pads the last tensor to a whole page
    return tensors;
  } finally {
    await file.close();
  }
}

async function packTensor(
  checkpoint: Checkpoint,
  tensor: PlannedTensor,
  target: { descriptor: number; byteOffset: number; wrote: (byteLength: number) => void },
  buffers: PackBuffers,
): Promise<Packed> {
  const source = checkpoint.tensor(tensor.sourceTensor);
  const type = usableType(source);
  const [rows, columns] = tensor.sourceShape;
  const elements = source.shape.reduce((product, size) => product * size, 1);
  if (elements !== rows * columns || (tensor.kind !== 'widen' && type !== tensor.type)) {
    throw new DefectError(
      `The description of "${tensor.id}" contradicts "${tensor.sourceTensor}" of the checkpoint`,
      {
        described: { shape: tensor.sourceShape, type: tensor.type },
        stored: { shape: source.shape, type },
      },
    );
  }
  const read = (byteOffset: number, bytes: Uint8Array) => checkpoint.readRange(source, byteOffset, bytes);
  switch (tensor.kind) {
    case 'widen':
      return packVector(read, columns, type, tensor.offset, target);
    case 'copy':
      return packCopy(read, rows, columns, type, target, buffers);
    case 'transpose':
      return packTransposed(read, rows, columns, type, target, buffers);
  }
}

function manifestTensor(tensor: PlannedTensor, { sha256, nonFinite }: Packed): ManifestTensor {
  return {
    id: tensor.id,
    sourceTensor: tensor.sourceTensor,
    type: tensor.type,
    shape: [...tensor.shape],
    byteOffset: String(tensor.byteOffset),
    byteLength: String(tensor.byteLength),
    sha256,
    finite: nonFinite === null,
    nonFinite: nonFinite === null ? null : { count: nonFinite.count, first: { ...nonFinite.first } },
  };
}

function describePacked(
  checkpoint: Checkpoint,
  files: readonly SourceFile[],
  weightsBytes: number,
  tensors: ManifestTensor[],
): PreparedManifest {
  return {
    format: manifestFormat,
    version: manifestVersion,
    source: {
      digest: sourceDigest(files),
      files: files.map(({ name, byteLength, sha256 }) => ({ name, byteLength: String(byteLength), sha256 })),
    },
    description: checkpoint.description,
    weights: {
      file: preparedNames.weights,
      byteLength: String(weightsBytes),
      alignment: String(weightsAlignment) as '4096',
    },
    tensors,
  };
}

function throwIfAborted(signal: AbortSignal | undefined, directory: string): void {
  if (signal?.aborted === true) {
    throw new InterruptedError('interrupted', `Cannot prepare "${directory}": cancelled`, { directory });
  }
}
