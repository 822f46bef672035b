import { createHash, webcrypto } from 'node:crypto';
import { readSync, write } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { DefectError, ExecutionError, UsageError } from '../base/errors.js';
import { widenStored } from '../base/half.js';
import { storedBytes } from '../base/stored-type.js';
import { type LowBitFormat, type LowBitName, lowBitFormat, lowBitNames } from './low-bit.js';
import { LowBitCopyWriter, type LowBitDirections, type LowBitRowMaker } from './low-bit-copy.js';
import { type LowBitFolder, openOrWriteFolder, type PlannedEntry, readFolder } from './low-bit-folder.js';
import type { LowBitEntry } from './low-bit-manifest.js';
import {
  type LowBitChoice,
  type LowBitPlan,
  lowBitBytes,
  uniformLowBit,
  withNeuronRows,
} from './low-bit-plan.js';
import { PackBuffers, type PackTarget, packTransposed, writeFully } from './matrix-pack.js';
import type { MatrixDescription, ModelDescription } from './model-description.js';
import type { LockOptions } from './prepare-lock.js';
import type { PreparedModel } from './prepared-model.js';
import type { TransposedReader } from './transpose.js';

/** A low-bit copy in its file. */
export interface StoredCopy {
  readonly format: LowBitName;
  readonly directions: number;
  readonly directionExponent: number;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/** The certified part of a prepared form: low-bit copies, and neuron-major rows of the matrices that have one. */
export interface LowBitModel {
  readonly plan: LowBitPlan;
  /** The description with those matrices neuron-major. */
  readonly description: ModelDescription;
  /** SHA-256 of the manifest of the copies. */
  readonly manifestDigest: string;
  readonly copiesFile: { readonly path: string; readonly descriptor: number };
  readonly rowsFile: { readonly path: string; readonly descriptor: number };
  /** Null for a matrix without one. */
  copy(id: string): StoredCopy | null;
  /** Byte offset of the neuron-major rows in their file. Throws `DefectError` for a matrix without a copy. */
  rowsPosition(id: string): number;
  /** Bytes of the neuron-major rows. */
  rowsBytes(id: string): number;
  /** Whether this call wrote any of it. */
  readonly writtenNow: boolean;
  readonly byteLength: number;
  close(): Promise<void>;
}

export interface LowBitOptions extends LockOptions {
  /** Read everything and compare its SHA-256. */
  readonly verify?: boolean | undefined;
  /** Write the copies even where they are there. */
  readonly replace?: boolean | undefined;
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  /** Makes rows faster than this thread does. */
  readonly makeRows?: LowBitRowMaker | undefined;
  /** Turns matrices faster than this thread does. */
  readonly readTransposed?: TransposedReader | undefined;
}

/** Where the certified part lies inside a prepared directory. */
export const lowBitDirectory = 'low-bit';

/**
 * Opens the low-bit copies of a plan, writing them, and the neuron-major rows that all plans share, where that was not
 * done. The caller closes it, before the prepared form. Throws as `openOrWriteFolder`.
 */
export async function openLowBit(
  prepared: PreparedModel,
  plan: LowBitPlan,
  options: LowBitOptions = {},
): Promise<LowBitModel> {
  const matrices = prepared.description.matrices.filter(({ id }) => plan.choices.has(id));
  const root = join(prepared.directory, lowBitDirectory);
  const common = { ...options, replace: false, prepared: prepared.manifestDigest };
  const rows = await openOrWriteFolder(join(root, 'rows'), {
    ...common,
    entries: matrices.map((matrix) => rowsEntry(prepared, matrix, options.readTransposed)),
  });
  try {
    const copies = await openOrWriteFolder(join(root, plan.name), {
      ...common,
      replace: options.replace,
      entries: matrices.map((matrix) =>
        copyEntry(rows.folder, matrix, plan.choices.get(matrix.id)!, options.makeRows),
      ),
    });
    return opened(prepared, plan, rows.folder, copies.folder, rows.writtenNow || copies.writtenNow);
  } catch (error) {
    await rows.folder.close();
    throw error;
  }
}

function opened(
  prepared: PreparedModel,
  plan: LowBitPlan,
  rows: LowBitFolder,
  copies: LowBitFolder,
  writtenNow: boolean,
): LowBitModel {
  return {
    plan,
    description: withNeuronRows(prepared.description, plan),
    manifestDigest: copies.manifestDigest,
    copiesFile: copies.file,
    rowsFile: rows.file,
    writtenNow,
    byteLength: rows.file.byteLength + copies.file.byteLength,
    copy(id) {
      const entry = copies.entries.get(id);
      if (entry === undefined) return null;
      const { format, directions, directionExponent, byteOffset, byteLength } = entry;
      return {
        format: format as LowBitName,
        directions,
        directionExponent,
        byteOffset: Number(byteOffset),
        byteLength: Number(byteLength),
      };
    },
    rowsPosition: (id) => Number(rowsOf(rows, id).byteOffset),
    rowsBytes: (id) => Number(rowsOf(rows, id).byteLength),
    async close() {
      await copies.close();
      await rows.close();
    },
  };
}

function rowsOf(rows: LowBitFolder, id: string): LowBitEntry {
  const entry = rows.entries.get(id);
  if (entry === undefined) throw new DefectError(`The certified part has no rows of "${id}"`, { id });
  return entry;
}

/**
 * What a name stands for: one of the formats for all layers, or copies that are written already (`waybill profile`).
 * Throws `UsageError` `low-bit-missing`; else as `openLowBit`.
 */
export async function lowBitPlan(prepared: PreparedModel, name: string): Promise<LowBitPlan> {
  if (lowBitNames.some((known) => known === name)) {
    return uniformLowBit(prepared.description, (id) => prepared.tensor(id).finite, name);
  }
  const manifest = await readFolder(join(prepared.directory, lowBitDirectory, name));
  if (manifest === null || manifest.prepared !== prepared.manifestDigest) {
    throw new UsageError(
      'low-bit-missing',
      `Cannot use the low-bit copies "${name}": the prepared form "${prepared.directory}" has none of that name; want one of ${lowBitNames.join(', ')}, or a name that "waybill profile --certify" has written`,
      { name },
    );
  }
  const choices = new Map<string, LowBitChoice>();
  for (const { id, format, directions, directionExponent } of manifest.entries) {
    const known = lowBitNames.find((one) => one === format);
    if (known === undefined) continue;
    const stored = { count: directions, exponent: directionExponent, elements: null };
    choices.set(id, { format: known, directions: directions === 0 ? null : stored });
  }
  return { name, choices };
}

/** A first projection is input-major in the weights file; certified, its rows are fetched one by one. */
function rowsEntry(
  prepared: PreparedModel,
  matrix: MatrixDescription,
  readTransposed: TransposedReader | undefined,
): PlannedEntry {
  const { id, inputs, outputs, type, layout } = matrix;
  if (layout !== 'input-major') throw new DefectError(`Cannot turn "${id}": it is not input-major`);
  const { byteOffset: source, byteLength } = prepared.tensor(id);
  const { descriptor, path } = prepared.weightsFile;
  return {
    id,
    format: 'rows',
    directions: 0,
    directionExponent: 0,
    byteLength,
    write: async (target, byteOffset, wrote) => {
      if (readTransposed !== undefined && byteLength <= mostTurnedBytes) {
        const turned = new Uint8Array(byteLength);
        const position = source;
        const elementBytes = storedBytes[type];
        await readTransposed(
          { path, descriptor, position, rows: inputs, columns: outputs, elementBytes },
          turned,
        );
        return writeDigested(turned, { descriptor: target, byteOffset, wrote });
      }
      const read = async (offset: number, bytes: Uint8Array) =>
        readFully(descriptor, path, source + offset, bytes);
      const { sha256 } = await packTransposed(
        read,
        inputs,
        outputs,
        type,
        { descriptor: target, byteOffset, wrote },
        new PackBuffers(),
      );
      return sha256;
    },
  };
}

/** Matrices up to this size are turned in memory, larger ones piece by piece in the file. */
const mostTurnedBytes = 512 * 1024 * 1024;
const writtenAtOnce = 16 * 1024 * 1024;

/** Writes bytes while their SHA-256 is computed, both off the event loop; resolves with it. */
async function writeDigested(bytes: Uint8Array<ArrayBuffer>, target: PackTarget): Promise<string> {
  const digesting = webcrypto.subtle.digest('SHA-256', bytes);
  const writing = async () => {
    for (let done = 0; done < bytes.byteLength; ) {
      const length = Math.min(writtenAtOnce, bytes.byteLength - done);
      const count = await writePart(target.descriptor, bytes, done, length, target.byteOffset + done);
      target.wrote(count);
      done += count;
    }
  };
  // Both end before an error of either is thrown.
  const [digest, written] = await Promise.allSettled([digesting, writing()]);
  if (written.status === 'rejected') throw written.reason;
  if (digest.status === 'rejected') throw digest.reason;
  return Buffer.from(digest.value).toString('hex');
}

function writePart(
  descriptor: number,
  bytes: Uint8Array,
  offset: number,
  length: number,
  position: number,
): Promise<number> {
  return new Promise((resolve, reject) => {
    write(descriptor, bytes, offset, length, position, (error, count) => {
      if (error === null) resolve(count);
      else reject(error);
    });
  });
}

/** Rows that are widened and rounded between two looks at whether to stop. */
const rowsAtOnce = 256;

/** Calls of a row maker that run beside one another: as many threads as libuv has by itself. */
const makersAtOnce = 4;

function copyEntry(
  rows: LowBitFolder,
  matrix: MatrixDescription,
  choice: LowBitChoice,
  makeRows: LowBitRowMaker | undefined,
): PlannedEntry {
  const { id, inputs, outputs, type } = matrix;
  const byteLength = lowBitBytes(matrix, choice);
  return {
    id,
    format: choice.format,
    directions: choice.directions?.count ?? 0,
    directionExponent: choice.directions?.exponent ?? 0,
    byteLength,
    write: async (target, byteOffset, wrote) => {
      const format: LowBitFormat = lowBitFormat(choice.format);
      const directions = elementsOf(choice, id);
      const writer = new LowBitCopyWriter(inputs, outputs, format, directions);
      const position = Number(rows.entries.get(id)!.byteOffset);
      const rowBytes = inputs * storedBytes[type];
      const make = makeRows ?? addRows(writer);
      const running: Promise<void>[] = [];
      let reported = 0;
      for (let begin = 0; begin < outputs; begin += rowsAtOnce) {
        const end = Math.min(outputs, begin + rowsAtOnce);
        const weights = new Uint8Array((end - begin) * rowBytes);
        readFully(rows.file.descriptor, rows.file.path, position + begin * rowBytes, weights);
        const { layout, bytes: copy } = writer;
        running.push(make({ inputs, format, directions, layout, type, weights, begin, end, copy }));
        if (running.length === makersAtOnce || end === outputs) await Promise.all(running.splice(0));
        const done = Math.floor((byteLength * end) / outputs);
        wrote(done - reported);
        reported = done;
        await setImmediate(); // lets an abort or a signal be seen
      }
      writeFully(target, writer.bytes, byteOffset);
      return createHash('sha256').update(writer.bytes).digest('hex');
    },
  };
}

function addRows(writer: LowBitCopyWriter): LowBitRowMaker {
  return async ({ type, weights, begin, end }) => {
    const values = widenStored(type, weights);
    const { inputs } = writer;
    for (let neuron = begin; neuron < end; neuron += 1) {
      writer.add(neuron, values.subarray((neuron - begin) * inputs, (neuron - begin + 1) * inputs));
    }
  };
}

function elementsOf({ directions }: LowBitChoice, id: string): LowBitDirections | null {
  if (directions === null) return null;
  const { count, exponent, elements } = directions;
  if (elements === null)
    throw new DefectError(`Cannot write the low-bit copy of "${id}": its directions are unknown`);
  return { count, exponent, elements };
}

function readFully(descriptor: number, path: string, position: number, target: Uint8Array): void {
  let filled = 0;
  while (filled < target.byteLength) {
    const count = readSync(descriptor, target, filled, target.byteLength - filled, position + filled);
    if (count === 0) {
      throw new ExecutionError('short-read', `Cannot read "${path}": the file ends early`, {
        path,
        position: String(position + filled),
      });
    }
    filled += count;
  }
}
