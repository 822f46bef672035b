import { dirname, resolve } from 'node:path';
import { makeFolders } from '../base/atomic-file.js';
import { WaybillError } from '../base/errors.js';
import type { ProcessIdentity } from '../base/process-identity.js';
import { type Checkpoint, openCheckpoint } from './checkpoint.js';
import { packDirectory } from './prepare.js';
import { withPrepareLock } from './prepare-lock.js';
import { planWeights } from './prepared-layout.js';
import { defaultPreparedDirectory, digestCacheDirectory } from './prepared-location.js';
import type { PreparedModel } from './prepared-model.js';
import { nonFiniteNotes, openPrepared } from './prepared-open.js';
import { digestSourceFiles, type SourceFile, sourceDigest } from './source-digest.js';

export type PreparePhase = 'hash' | 'pack' | 'verify';

export interface PrepareOptions {
  /** `--prepared DIR`; default `$HF_HOME/waybill/<source digest>`. */
  readonly directory?: string | undefined;
  /** Hash every source file and every prepared tensor, whatever is remembered of them. */
  readonly verify?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Bytes done and in all of a phase; not called for a phase that has nothing to do. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number, phase: PreparePhase) => void) | undefined;
  /** Called once when another process prepares the same directory and this one waits for it. */
  readonly onWait?: ((holder: ProcessIdentity, lockPath: string) => void) | undefined;
  /** Bytes of packing buffers, see `packBufferBytes`. */
  readonly bufferBytes?: number | undefined;
  /** HF_HOME is read from here; the process's own environment unless a test hands in another. */
  readonly environment?: NodeJS.ProcessEnv | undefined;
}

export interface OpenedPrepared {
  readonly prepared: PreparedModel;
  /** True where this call packed the weights, false where they were found. */
  readonly preparedNow: boolean;
  /** To be said once to the user: notes of the description, and weights that are not finite. */
  readonly notes: readonly string[];
}

/**
 * Opens the prepared form of a checkpoint folder, packing it first where that was not done. In the default place a
 * directory that another version of the program wrote is packed anew; in a place of the user's own it is an error, and
 * so is one that came from other weights (`TamperedError` `source-changed`). The caller closes `prepared`.
 */
export async function openOrPrepare(
  modelFolder: string,
  options: PrepareOptions = {},
): Promise<OpenedPrepared> {
  const checkpoint = await openCheckpoint(modelFolder);
  try {
    return await prepare(checkpoint, options);
  } finally {
    await checkpoint.close();
  }
}

/** As `openOrPrepare`, for a checkpoint that is open already and stays so. */
export async function prepare(checkpoint: Checkpoint, options: PrepareOptions = {}): Promise<OpenedPrepared> {
  const { verify, signal, environment } = options;
  const files = await digestSourceFiles(checkpoint.directory, namesOf(checkpoint), {
    cacheDirectory: digestCacheDirectory(environment),
    verify,
    signal,
    onProgress: (done, total) => options.onProgress?.(done, total, 'hash'),
  });
  const directory = resolve(options.directory ?? defaultPreparedDirectory(sourceDigest(files), environment));
  const replaceable = options.directory === undefined;
  const found = await tryOpen(directory, checkpoint, files, replaceable, options);
  if (found.prepared !== null) return opened(found.prepared, false);
  await makeFolders(dirname(directory), 'prepare in', planWeights(checkpoint.description).byteLength);
  return withPrepareLock(directory, { signal, onWait: options.onWait }, async () => {
    // Whoever held the lock before may have done the work.
    const again = await tryOpen(directory, checkpoint, files, replaceable, options);
    if (again.prepared !== null) return opened(again.prepared, false);
    await packDirectory(checkpoint, {
      directory,
      files,
      replace: again.outdated,
      signal,
      bufferBytes: options.bufferBytes,
      onProgress: (done, total) => options.onProgress?.(done, total, 'pack'),
    });
    const source = { files, description: checkpoint.description };
    return opened(await openPrepared(directory, { source }), true);
  });
}

function namesOf(checkpoint: Checkpoint): string[] {
  return checkpoint.files.map(({ name }) => name);
}

function opened(prepared: PreparedModel, preparedNow: boolean): OpenedPrepared {
  return { prepared, preparedNow, notes: [...prepared.description.notes, ...nonFiniteNotes(prepared)] };
}

/** Null where there is nothing to open: absent or empty, or outdated where that may be replaced. */
async function tryOpen(
  directory: string,
  checkpoint: Checkpoint,
  files: readonly SourceFile[],
  replaceable: boolean,
  { verify, signal, onProgress }: PrepareOptions,
): Promise<{ prepared: PreparedModel | null; outdated: boolean }> {
  try {
    const prepared = await openPrepared(directory, {
      source: { files, description: checkpoint.description },
      verify,
      signal,
      onProgress: (done, total) => onProgress?.(done, total, 'verify'),
    });
    return { prepared, outdated: false };
  } catch (error) {
    if (!(error instanceof WaybillError)) throw error;
    // An incomplete directory is no work of this program: packing into it fails unless it is empty.
    if (error.code === 'prepared-missing' || error.code === 'prepared-incomplete') {
      return { prepared: null, outdated: false };
    }
    const outdated = error.code === 'prepared-version' || error.code === 'prepared-outdated';
    if (outdated && replaceable) return { prepared: null, outdated: true };
    throw error;
  }
}
