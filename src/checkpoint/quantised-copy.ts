import { createHash } from 'node:crypto';
import { readSync } from 'node:fs';
import { type FileHandle, open, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { z } from 'zod';
import { storageError, syncDirectory, systemCode, writeFileAtomic } from '../base/atomic-file.js';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { DefectError, InputError, InterruptedError } from '../base/errors.js';
import { widenStored } from '../base/half.js';
import { parseJson } from '../base/json.js';
import type { ProcessIdentity } from '../base/process-identity.js';
import { type QuantisedType, quantisedLayout } from '../base/quantised-type.js';
import { storedBytes } from '../base/stored-type.js';
import type { MatrixDescription, ModelDescription } from './model-description.js';
import { removeLeftovers, temporarySibling, withPrepareLock } from './prepare-lock.js';
import { weightsAlignment } from './prepared-layout.js';
import type { PreparedModel } from './prepared-model.js';
import { type InputRows, quantise } from './quantise.js';

/** The quantised matrices of a prepared model, opened. */
export interface QuantisedCopy {
  readonly type: QuantisedType;
  readonly file: { readonly path: string; readonly descriptor: number; readonly byteLength: number };
  /** SHA-256 of its manifest, for receipts. */
  readonly manifestDigest: string;
  /** Where a matrix begins in the file; `DefectError` for one that is not quantised. */
  position(id: string): number;
  close(): Promise<void>;
}

export interface QuantiseOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  readonly onWait?: ((holder: ProcessIdentity, lockPath: string) => void) | undefined;
}

const copyFormat = 'waybill-quantised';
const copyVersion = 1;
const bandBytes = 8 * 1024 * 1024;

const manifestSchema = z.strictObject({
  format: z.literal(copyFormat),
  version: z.literal(copyVersion),
  type: z.enum(['q8', 'q4']),
  /** SHA-256 of the manifest of the prepared form that it was made from. */
  prepared: z.string(),
  byteLength: z.string(),
  tensors: z.array(
    z.strictObject({ id: z.string(), byteOffset: z.string(), byteLength: z.string(), sha256: z.string() }),
  ),
});
type CopyManifest = z.infer<typeof manifestSchema>;

/** Every matrix but a head that is the token table: tables stay as they are, and so does what is one. */
export function quantisedMatrices({ matrices, tables }: ModelDescription): MatrixDescription[] {
  const table = tables.find(({ id }) => id === 'token-embedding');
  return matrices.filter(({ role, sourceTensor }) => role !== 'head' || sourceTensor !== table?.sourceTensor);
}

/**
 * Opens the quantised matrices of a prepared model, making them first where that was not done: `quantised-<type>.bin`
 * and, once that is whole, `quantised-<type>.json` in the prepared directory (docs/formats/prepared.md).
 * @throws InputError `not-quantisable`; SetupError as `storageError`; InterruptedError `interrupted`
 */
export async function openOrQuantise(
  prepared: PreparedModel,
  type: QuantisedType,
  options: QuantiseOptions = {},
): Promise<QuantisedCopy> {
  const found = await tryOpen(prepared, type);
  if (found !== null) return found;
  const { signal, onWait } = options;
  return withPrepareLock(prepared.directory, { signal, onWait }, async () => {
    const again = await tryOpen(prepared, type);
    if (again !== null) return again;
    await write(prepared, type, options);
    const made = await tryOpen(prepared, type);
    if (made === null) throw new DefectError(`Cannot open the ${type} copy in "${prepared.directory}"`);
    return made;
  });
}

function namesOf(directory: string, type: QuantisedType): { data: string; manifest: string } {
  return {
    data: join(directory, `quantised-${type}.bin`),
    manifest: join(directory, `quantised-${type}.json`),
  };
}

/** Where each matrix lies: the description decides all of it. */
function placesOf(description: ModelDescription, type: QuantisedType) {
  let end = 0;
  const places = quantisedMatrices(description).map((matrix) => {
    const { byteLength } = quantisedLayout(type, matrix.inputs, matrix.outputs);
    const place = { matrix, byteOffset: end, byteLength };
    end = Math.ceil((end + byteLength) / weightsAlignment) * weightsAlignment;
    return place;
  });
  return { places, byteLength: end };
}

/** Null where there is none, or one that something else was made from: it is then made anew. */
async function tryOpen(prepared: PreparedModel, type: QuantisedType): Promise<QuantisedCopy | null> {
  const names = namesOf(prepared.directory, type);
  const { places, byteLength } = placesOf(prepared.description, type);
  let bytes: Uint8Array;
  let file: FileHandle;
  try {
    bytes = await readFile(names.manifest);
    file = await open(names.data, 'r');
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return null;
    throw storageError(error, 'open', names.manifest, 0);
  }
  const manifest = manifestSchema.safeParse(parseJson(bytes, names.manifest));
  const fits =
    manifest.success &&
    manifest.data.type === type &&
    manifest.data.prepared === prepared.manifestDigest &&
    manifest.data.byteLength === String(byteLength) &&
    canonicalJson(manifest.data.tensors.map(({ sha256: _, ...place }) => place)) ===
      canonicalJson(places.map(({ matrix: { id }, ...place }) => ({ id, ...decimals(place) })));
  if (!fits || (await file.stat()).size !== byteLength) {
    await file.close();
    return null;
  }
  const positions = new Map(places.map(({ matrix, byteOffset }) => [matrix.id, byteOffset]));
  let closed = false;
  return {
    type,
    file: { path: names.data, descriptor: file.fd, byteLength },
    manifestDigest: sha256Hex(bytes),
    position(id) {
      const position = positions.get(id);
      if (position === undefined) throw new DefectError(`The ${type} copy has no matrix "${id}"`);
      return position;
    },
    async close() {
      if (closed) return;
      closed = true;
      await file.close();
    },
  };
}

function decimals({ byteOffset, byteLength }: { byteOffset: number; byteLength: number }) {
  return { byteOffset: String(byteOffset), byteLength: String(byteLength) };
}

/** Holds one quantised matrix and a band of the stored one at a time. */
async function write(prepared: PreparedModel, type: QuantisedType, options: QuantiseOptions): Promise<void> {
  const names = namesOf(prepared.directory, type);
  const { places, byteLength } = placesOf(prepared.description, type);
  const temporary = temporarySibling(names.data);
  await removeLeftovers(names.data);
  const tensors: CopyManifest['tensors'] = [];
  try {
    const file = await open(temporary, 'w');
    try {
      for (const { matrix, ...place } of places) {
        const bytes = await quantiseMatrix(prepared, matrix, type, options.signal);
        await file.write(bytes, 0, bytes.byteLength, place.byteOffset);
        const sha256 = createHash('sha256').update(bytes).digest('hex');
        tensors.push({ id: matrix.id, ...decimals(place), sha256 });
        options.onProgress?.(place.byteOffset + place.byteLength, byteLength);
      }
      await file.truncate(byteLength);
      await file.sync();
    } finally {
      await file.close();
    }
    // A manifest vouches for its data, so the old one goes first and the new one comes last.
    await rm(names.manifest, { force: true });
    await rename(temporary, names.data);
    await syncDirectory(prepared.directory);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {});
    throw storageError(error, 'write', names.data, byteLength);
  }
  const manifest: CopyManifest = {
    format: copyFormat,
    version: copyVersion,
    type,
    prepared: prepared.manifestDigest,
    byteLength: String(byteLength),
    tensors,
  };
  await writeFileAtomic(names.manifest, canonicalJson(manifest));
}

async function quantiseMatrix(
  prepared: PreparedModel,
  matrix: MatrixDescription,
  type: QuantisedType,
  signal: AbortSignal | undefined,
): Promise<Uint8Array> {
  const rows =
    matrix.layout === 'input-major' ? bandsOf(prepared, matrix, signal) : columnsOf(prepared, matrix);
  const bytes = await quantise(type, matrix.inputs, matrix.outputs, rows);
  if (bytes !== null) return bytes;
  throw new InputError(
    'not-quantisable',
    `Cannot quantise "${matrix.id}" to ${type}: it holds weights that are not finite, or too large; use a policy of full precision`,
    { id: matrix.id, type },
  );
}

/** Rows of an input-major matrix, read in bands. */
function bandsOf(
  { weightsFile, tensor }: PreparedModel,
  { id, type, inputs, outputs }: MatrixDescription,
  signal: AbortSignal | undefined,
): InputRows {
  const rowBytes = outputs * storedBytes[type];
  const band = Math.max(1, Math.floor(bandBytes / rowBytes));
  const { byteOffset } = tensor(id);
  return async (visit) => {
    for (let begin = 0; begin < inputs; begin += band) {
      if (signal?.aborted === true)
        throw new InterruptedError('interrupted', `Cannot quantise "${id}": cancelled`);
      await eventLoopTurn();
      const count = Math.min(band, inputs - begin);
      const bytes = readAt(weightsFile.descriptor, byteOffset + begin * rowBytes, count * rowBytes, id);
      const values = widenStored(type, bytes);
      for (let row = 0; row < count; row += 1) {
        visit(begin + row, values.subarray(row * outputs, (row + 1) * outputs));
      }
    }
  };
}

/** Columns of an output-major matrix (only `up` of a sparse gated FFN), held whole. */
function columnsOf(
  { weightsFile, tensor }: PreparedModel,
  { id, type, inputs, outputs }: MatrixDescription,
): InputRows {
  const { byteOffset, byteLength } = tensor(id);
  const values = widenStored(type, readAt(weightsFile.descriptor, byteOffset, byteLength, id));
  const column = new Float32Array(outputs);
  return async (visit) => {
    for (let input = 0; input < inputs; input += 1) {
      for (let j = 0; j < outputs; j += 1) column[j] = values[j * inputs + input]!;
      visit(input, column);
    }
  };
}

function readAt(descriptor: number, position: number, byteLength: number, id: string): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  for (let done = 0; done < byteLength; ) {
    const read = readSync(descriptor, bytes, done, byteLength - done, position + done);
    if (read === 0) throw new InputError('short-read', `Cannot read "${id}": its file ends early`, { id });
    done += read;
  }
  return bytes;
}
