import { type FileHandle, open, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { systemCode } from '../base/atomic-file.js';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { DefectError, InputError, SetupError, TamperedError } from '../base/errors.js';
import type { ModelDescription } from './model-description.js';
import { decodeManifest, type PreparedManifest, preparedNames } from './prepared-manifest.js';
import type { PreparedModel, PreparedTensor } from './prepared-model.js';
import type { SourceFile } from './source-digest.js';
import { requireStatedDigest, verifyDigests } from './verify-digests.js';

/** The checkpoint that a prepared directory is expected to have come from. */
export interface ExpectedSource {
  readonly files: readonly SourceFile[];
  readonly description: ModelDescription;
}

export interface PreparedOpenOptions {
  /** Refuse a directory that was prepared from anything else. */
  readonly source?: ExpectedSource | undefined;
  /** Read every tensor and compare its SHA-256; without it, opening reads the manifest alone. */
  readonly verify?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/**
 * Opens a prepared directory. Throws `SetupError` `prepared-missing`; `InputError` `prepared-incomplete`,
 * `prepared-version`, `prepared-manifest`, `prepared-outdated` (the same checkpoint, described otherwise by this
 * program); `TamperedError` `manifest-digest`, `weights-size`, `tensor-digest`, `source-changed`.
 */
export async function openPrepared(
  directory: string,
  options: PreparedOpenOptions = {},
): Promise<PreparedModel> {
  const bytes = await readManifest(directory);
  const path = join(directory, preparedNames.manifest);
  const manifestDigest = sha256Hex(bytes);
  await checkManifestDigest(directory, manifestDigest);
  const manifest = decodeManifest(bytes, path);
  if (options.source !== undefined) checkSource(directory, manifest, options.source);
  const tensors = new Map<string, PreparedTensor>();
  for (const { sourceTensor: _, nonFinite, byteOffset, byteLength, ...rest } of manifest.tensors) {
    const numbers = { byteOffset: Number(byteOffset), byteLength: Number(byteLength) };
    tensors.set(rest.id, Object.freeze({ ...rest, ...numbers, nonFinite }));
  }
  const weightsPath = join(directory, preparedNames.weights);
  const file = await openWeights(directory, weightsPath);
  try {
    await checkSize(file, weightsPath, manifest, tensors);
    if (options.verify === true) await verifyDigests(file, weightsPath, [...tensors.values()], options);
  } catch (error) {
    await file.close();
    throw error;
  }
  let closed = false;
  return {
    directory,
    description: manifest.description,
    manifestDigest,
    sourceDigest: manifest.source.digest,
    sourceFiles: sourceFilesOf(manifest),
    weightsFile: { path: weightsPath, descriptor: file.fd, byteLength: Number(manifest.weights.byteLength) },
    tensor(id) {
      const tensor = tensors.get(id);
      if (tensor === undefined)
        throw new DefectError(`The prepared form has no tensor "${id}"`, { id, directory });
      return tensor;
    },
    async close() {
      if (closed) return;
      closed = true;
      await file.close();
    },
  };
}

/** One line for each tensor that holds an infinity or NaN. */
export function nonFiniteNotes(prepared: PreparedModel): string[] {
  const { vectors, tables, matrices } = prepared.description;
  return [...vectors, ...tables, ...matrices].flatMap(({ id, sourceTensor }) => {
    const { nonFinite } = prepared.tensor(id);
    if (nonFinite === undefined || nonFinite === null) return [];
    const { row, column, value } = nonFinite.first;
    const others = nonFinite.count === 1 ? '' : ` and ${nonFinite.count - 1} more`;
    return [
      `Weights of "${sourceTensor}" are not finite: ${value} at [${row}, ${column}]${others}; "${id}" is always read densely`,
    ];
  });
}

async function readManifest(directory: string): Promise<Uint8Array> {
  const path = join(directory, preparedNames.manifest);
  try {
    return await readFile(path);
  } catch (cause) {
    const code = systemCode(cause);
    if (code !== 'ENOENT' && code !== 'ENOTDIR') {
      throw new SetupError(
        'prepared-unreadable',
        `Cannot open "${path}": ${code ?? String(cause)}`,
        { path },
        { cause },
      );
    }
    if (await isFolder(directory)) throw incomplete(directory, preparedNames.manifest, cause);
    throw new SetupError(
      'prepared-missing',
      `Cannot open the prepared directory "${directory}": it does not exist`,
      { directory },
      { cause },
    );
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

function incomplete(directory: string, name: string, cause: unknown): InputError {
  return new InputError(
    'prepared-incomplete',
    `Cannot open the prepared directory "${directory}": "${name}" is missing`,
    { directory, file: name },
    { cause },
  );
}

async function checkManifestDigest(directory: string, actual: string): Promise<void> {
  let line: string;
  try {
    line = await readFile(join(directory, preparedNames.digest), 'utf8');
  } catch (cause) {
    throw incomplete(directory, preparedNames.digest, cause);
  }
  requireStatedDigest(directory, preparedNames, actual, line);
}

function sourceFilesOf(manifest: PreparedManifest): SourceFile[] {
  return manifest.source.files.map((file) => ({ ...file, byteLength: Number(file.byteLength) }));
}

function checkSource(directory: string, manifest: PreparedManifest, source: ExpectedSource): void {
  const prepared = new Map(manifest.source.files.map(({ name, sha256 }) => [name, sha256]));
  const present = new Map(source.files.map(({ name, sha256 }) => [name, sha256]));
  for (const name of new Set([...prepared.keys(), ...present.keys()])) {
    const before = prepared.get(name) ?? null;
    const now = present.get(name) ?? null;
    if (before === now) continue;
    const say = (digest: string | null) => (digest === null ? 'absent' : `SHA-256 ${digest}`);
    throw new TamperedError(
      'source-changed',
      `Cannot use the prepared directory "${directory}": "${name}" of the checkpoint was ${say(before)} when it was prepared and is ${say(now)} now`,
      { directory, file: name, preparedSha256: before, currentSha256: now },
    );
  }
  if (canonicalJson(manifest.description) !== canonicalJson(source.description)) {
    throw new InputError(
      'prepared-outdated',
      `Cannot use the prepared directory "${directory}": this program describes the checkpoint otherwise than the one that prepared it`,
      { directory },
    );
  }
}

async function openWeights(directory: string, path: string): Promise<FileHandle> {
  try {
    return await open(path, 'r');
  } catch (cause) {
    if (systemCode(cause) === 'ENOENT') throw incomplete(directory, preparedNames.weights, cause);
    throw new SetupError(
      'prepared-unreadable',
      `Cannot open "${path}": ${systemCode(cause)}`,
      { path },
      { cause },
    );
  }
}

async function checkSize(
  file: FileHandle,
  path: string,
  manifest: PreparedManifest,
  tensors: ReadonlyMap<string, PreparedTensor>,
): Promise<void> {
  const { size } = await file.stat();
  const wanted = Number(manifest.weights.byteLength);
  if (size === wanted) return;
  const cut = [...tensors.values()].find(({ byteOffset, byteLength }) => byteOffset + byteLength > size);
  const lost =
    cut === undefined
      ? ''
      : `; "${cut.id}" lies at bytes ${cut.byteOffset} to ${cut.byteOffset + cut.byteLength}`;
  throw new TamperedError(
    'weights-size',
    `Cannot use "${path}": it has ${size} bytes, its manifest says ${wanted}${lost}`,
    { path, actualBytes: String(size), wantedBytes: String(wanted), tensor: cut?.id ?? null },
  );
}
