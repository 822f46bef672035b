import { createHash } from 'node:crypto';
import { readSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { DefectError, InputError, InterruptedError } from '../base/errors.js';
import { widenStored } from '../base/half.js';
import { type QuantisedType, quantisedLayout } from '../base/quantised-type.js';
import { storedBytes } from '../base/stored-type.js';
import { openOrWriteFolder, type PlannedEntry } from './low-bit-folder.js';
import { writeFully } from './matrix-pack.js';
import type { MatrixDescription, ModelDescription } from './model-description.js';
import type { LockOptions } from './prepare-lock.js';
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

export interface QuantiseOptions extends LockOptions {
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

const bandBytes = 8 * 1024 * 1024;

/** Where quantised matrices lie inside a prepared directory, a folder a type. */
export const quantisedDirectory = 'quantised';

/** Every matrix but a head that is the token table: tables stay as they are, and so does what is one. */
export function quantisedMatrices({ matrices, tables }: ModelDescription): MatrixDescription[] {
  const table = tables.find(({ id }) => id === 'token-embedding');
  return matrices.filter(({ role, sourceTensor }) => role !== 'head' || sourceTensor !== table?.sourceTensor);
}

/**
 * Opens the quantised matrices of a prepared model, writing their folder first where that was not done
 * (docs/formats/prepared.md). Throws `InputError` `not-quantisable`; else as `openOrWriteFolder`.
 */
export async function openOrQuantise(
  prepared: PreparedModel,
  type: QuantisedType,
  options: QuantiseOptions = {},
): Promise<QuantisedCopy> {
  const { folder, writtenNow } = await openOrWriteFolder(join(prepared.directory, quantisedDirectory, type), {
    ...options,
    prepared: prepared.manifestDigest,
    entries: quantisedMatrices(prepared.description).map((matrix) =>
      entryOf(prepared, matrix, type, options.signal),
    ),
  });
  if (writtenNow) await removeOlderVersion(prepared.directory, type);
  return {
    type,
    file: folder.file,
    manifestDigest: folder.manifestDigest,
    position(id) {
      const entry = folder.entries.get(id);
      if (entry === undefined) throw new DefectError(`The ${type} copy has no matrix "${id}"`);
      return Number(entry.byteOffset);
    },
    close: () => folder.close(),
  };
}

/** Two files beside the prepared weights, which nothing opens any more. */
async function removeOlderVersion(directory: string, type: QuantisedType): Promise<void> {
  for (const end of ['bin', 'json']) await rm(join(directory, `quantised-${type}.${end}`), { force: true });
}

/** Holds one quantised matrix and a band of the stored one at a time. */
function entryOf(
  prepared: PreparedModel,
  matrix: MatrixDescription,
  type: QuantisedType,
  signal: AbortSignal | undefined,
): PlannedEntry {
  return {
    id: matrix.id,
    format: type,
    directions: 0,
    directionExponent: 0,
    byteLength: quantisedLayout(type, matrix.inputs, matrix.outputs).byteLength,
    write: async (descriptor, byteOffset, wrote) => {
      const bytes = await quantiseMatrix(prepared, matrix, type, signal);
      writeFully(descriptor, bytes, byteOffset);
      wrote(bytes.byteLength);
      return createHash('sha256').update(bytes).digest('hex');
    },
  };
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
