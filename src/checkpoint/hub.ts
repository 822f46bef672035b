import { readFile, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { SetupError, UsageError, WaybillError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import { type CachedSnapshot, HubCacheRepository } from './hub-cache.js';
import { HubClient, type HubFile } from './hub-client.js';
import { downloadBlob, partialPathOf } from './hub-download.js';
import { selectFiles, selectShards } from './hub-files.js';
import { type HubId, parseHubId } from './hub-id.js';
import { type HubSettings, readHubSettings } from './hub-settings.js';
import { parseShardIndex } from './shard-index.js';

export interface HubProgress {
  readonly file: string;
  /** Bytes of all wanted files that are there, those of earlier runs included. */
  readonly doneBytes: number;
  readonly totalBytes: number;
}

export interface ResolveModelOptions {
  /** Branch, tag or commit of a hub id; `main` when nobody says. An error with a folder. */
  readonly revision?: string | undefined;
  /** Use the cache alone. `HF_HUB_OFFLINE` says the same. */
  readonly offline?: boolean | undefined;
  readonly onProgress?: ((progress: HubProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Where HF_* variables are read, `process.env` by default. */
  readonly environment?: NodeJS.ProcessEnv | undefined;
  readonly retryDelayMs?: number | undefined;
}

export type ResolvedModel =
  | { readonly kind: 'folder'; readonly directory: string }
  | {
      readonly kind: 'hub';
      readonly directory: string;
      readonly name: string;
      readonly revision: string;
      readonly commit: string;
      /** True where nothing was asked of the network, or it could not be reached. */
      readonly fromCache: boolean;
    };

/**
 * Finds the folder of a model: an existing folder as it is, else a hub id (`name`, `org/name`, with `@revision`) in
 * the hub cache, else from the hub. A whole cached snapshot of the revision is used without asking the network, so
 * a branch stays at the commit that was fetched until its snapshot is removed. Throws `SetupError`: `model-missing`,
 * `hub-offline`, `hub-not-found`, `hub-revision-unknown`, `hub-gated`, `hub-unauthorised`, `hub-unreachable`,
 * `hub-download-corrupt`, `disk-full`; `InputError` for a repository without config or weights; `UsageError`.
 */
export async function resolveModel(model: string, options: ResolveModelOptions = {}): Promise<ResolvedModel> {
  const entry = await stat(model).catch(() => null);
  if (entry !== null) return asFolder(model, entry.isDirectory(), options.revision);
  const id = parseHubId(model, options.revision);
  if (id === null) {
    throw new SetupError(
      'model-missing',
      `Opening the model "${model}" failed: no such folder exists, and it is no hub id of the form "name" or "organisation/name"`,
      { model },
    );
  }
  const settings = readHubSettings(options.environment);
  const repository = new HubCacheRepository(settings.cacheDirectory, id.name);
  const cached = await repository.find(id);
  if (cached?.holds === 'weights-and-tokenizer') return fromHub(id, cached, true);
  const usable = cached?.holds === 'weights' ? cached : null;
  if (settings.offline || options.offline === true) {
    if (usable !== null) return fromHub(id, usable, true);
    throw offlineError(id, settings, cached);
  }
  try {
    return await fetchSnapshot(settings, repository, id, options);
  } catch (error) {
    const away =
      error instanceof WaybillError && ['hub-unreachable', 'hub-server-error'].includes(error.code);
    if (away && usable !== null) return fromHub(id, usable, true);
    throw error;
  }
}

function asFolder(model: string, isDirectory: boolean, revision: string | undefined): ResolvedModel {
  if (!isDirectory) {
    throw new SetupError(
      'model-not-a-folder',
      `Opening the model "${model}" failed: it is a file, wanted is the folder that holds it or a hub id`,
      { model },
    );
  }
  if (revision !== undefined) {
    throw new UsageError(
      'revision-of-folder',
      `Opening the model "${model}" failed: it is a folder, and revision "${revision}" applies to hub ids only`,
      { model, revision },
    );
  }
  return { kind: 'folder', directory: resolve(model) };
}

function fromHub(
  { name, revision }: HubId,
  { directory, commit }: Omit<CachedSnapshot, 'holds'>,
  fromCache: boolean,
): ResolvedModel {
  return { kind: 'hub', directory, name, revision, commit, fromCache };
}

function offlineError(
  { name, revision }: HubId,
  settings: HubSettings,
  cached: CachedSnapshot | null,
): SetupError {
  const state =
    cached === null ? `holds no revision "${revision}" of it` : `holds revision "${revision}" of it in part`;
  return new SetupError(
    'hub-offline',
    `Opening the model "${name}" failed: "${settings.cacheDirectory}" ${state}, and the network is switched off (HF_HUB_OFFLINE)`,
    { model: name, revision, cacheDirectory: settings.cacheDirectory },
  );
}

async function fetchSnapshot(
  settings: HubSettings,
  repository: HubCacheRepository,
  id: HubId,
  options: ResolveModelOptions,
): Promise<ResolvedModel> {
  const client = new HubClient(settings, id, options.signal);
  const commit = await client.commit();
  const files = await client.files(commit);
  const selection = selectFiles(files, id.name);
  await repository.create();

  const fetched = new Map<string, number>();
  let totalBytes = 0;
  const fetchAll = async (wanted: readonly HubFile[]): Promise<void> => {
    totalBytes += sum(wanted.map((file) => file.byteLength));
    await repository.requireSpace(
      sum(await Promise.all(wanted.map((file) => missingBytes(repository, file)))),
    );
    for (const file of wanted) {
      const onBytes = (bytes: number): void => {
        fetched.set(file.path, bytes);
        options.onProgress?.({ file: file.path, doneBytes: sum([...fetched.values()]), totalBytes });
      };
      await fetchFile(repository, { client, commit, file, onBytes, options });
    }
  };
  // The index comes before any weights, and the sizes of all shards are known before the first of them.
  await fetchAll(selection.index === null ? selection.small : [...selection.small, selection.index]);
  if (selection.single !== null) await fetchAll([selection.single]);
  if (selection.index !== null) {
    const name = selection.index.path;
    const json = parseJson(await readFile(repository.blobPath(selection.index.digest.hex)), name);
    await fetchAll(selectShards(files, parseShardIndex(json, name).files, name));
  }
  await repository.writeRef(id.revision, commit);
  return fromHub(id, { directory: repository.snapshotDirectory(commit), commit }, false);
}

interface FileFetch {
  readonly client: HubClient;
  readonly commit: string;
  readonly file: HubFile;
  readonly onBytes: (bytes: number) => void;
  readonly options: ResolveModelOptions;
}

async function fetchFile(
  repository: HubCacheRepository,
  { client, commit, file, onBytes, options }: FileFetch,
): Promise<void> {
  const blobPath = repository.blobPath(file.digest.hex);
  const blob = await stat(blobPath).catch(() => null);
  if (blob?.size !== file.byteLength) {
    const { signal, retryDelayMs } = options;
    await downloadBlob({ client, commit, file, blobPath, onBytes, signal, retryDelayMs });
  }
  onBytes(file.byteLength);
  await repository.link(commit, file.path, file.digest.hex);
}

/** Bytes that the disk must still take for a file. */
async function missingBytes(repository: HubCacheRepository, file: HubFile): Promise<number> {
  const blobPath = repository.blobPath(file.digest.hex);
  const blob = await stat(blobPath).catch(() => null);
  if (blob?.size === file.byteLength) return 0;
  const partial = await stat(partialPathOf(blobPath)).catch(() => null);
  return Math.max(0, file.byteLength - (partial?.size ?? 0));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
