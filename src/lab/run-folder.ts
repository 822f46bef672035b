import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  makeFolders,
  storageError,
  syncDirectory,
  systemCode,
  writeFileAtomic,
} from '../base/atomic-file.js';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { InputError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { type RunData, readRun } from './read-run.js';
import { type Manifest, manifestSchema, type RunRecord, recordSchema, runFiles } from './record-format.js';

/** A record without what the chain adds to it. */
export type NewRecord = RunRecord extends infer Record
  ? Record extends RunRecord
    ? Omit<Record, 'sequence' | 'previous'>
    : never
  : never;

/** A run's folder, open for writing: every record is on the disk, whole, before `append` resolves. */
export class RunFolder {
  readonly path: string;
  #sequence: number;
  #head: string;

  private constructor(path: string, sequence: number, head: string) {
    this.path = path;
    this.#sequence = sequence;
    this.#head = head;
  }

  /**
   * Makes the folder with protocol, salt and manifest; the manifest comes last and makes it a run.
   * @throws UsageError `run-exists`; SetupError as `storageError`
   */
  static async create(
    path: string,
    parts: {
      protocol: Uint8Array;
      superseded: readonly Uint8Array[];
      salt: string;
      local: string;
      manifest: Manifest;
    },
  ): Promise<RunFolder> {
    const bytes = encode(manifestSchema.parse(parts.manifest));
    await makeFolders(path, 'make', bytes.length + parts.protocol.length);
    const names = await readdir(path);
    if (names.length > 0) {
      throw new UsageError(
        'run-exists',
        `Cannot make the run "${path}": the folder is not empty, want a new one`,
        { path },
      );
    }
    try {
      await mkdir(join(path, 'records'));
      if (parts.superseded.length > 0) await mkdir(join(path, 'superseded'));
    } catch (error) {
      throw storageError(error, 'make', path, bytes.length);
    }
    await writeFileAtomic(join(path, runFiles.salt), `${parts.salt}\n`, { mode: 0o600 });
    await writeFileAtomic(join(path, 'local.json'), parts.local, { mode: 0o600 });
    for (const [index, earlier] of parts.superseded.entries())
      await writeFileAtomic(join(path, runFiles.superseded(index + 1)), earlier);
    await writeFileAtomic(join(path, runFiles.protocol), parts.protocol);
    await writeFileAtomic(join(path, runFiles.manifest), bytes);
    await syncDirectory(path);
    return new RunFolder(path, 0, sha256Hex(bytes));
  }

  /** Opens a run to go on with; removes drafts of files that a killed process left. */
  static async open(path: string): Promise<{ folder: RunFolder; run: RunData; salt: string; local: string }> {
    const run = await readRunFolder(path);
    for (const part of [path, join(path, 'records')]) {
      for (const name of await readdir(part)) {
        if (/^\..*\.tmp$/.test(name)) await rm(join(part, name), { force: true });
      }
    }
    const folder = new RunFolder(path, run.records.length, run.head);
    const own = async (name: string) => (await readBytes(join(path, name), path)).toString('utf8').trim();
    return { folder, run, salt: await own(runFiles.salt), local: await own('local.json') };
  }

  /** Writes the next record, flushed and renamed into place. Its form is checked first. */
  async append(record: NewRecord): Promise<RunRecord> {
    const linked = recordSchema.parse({ ...record, sequence: this.#sequence + 1, previous: this.#head });
    const bytes = encode(linked);
    await writeFileAtomic(join(this.path, runFiles.record(linked.sequence)), bytes, { replace: false });
    this.#sequence = linked.sequence;
    this.#head = sha256Hex(bytes);
    return linked;
  }

  get recordCount(): number {
    return this.#sequence;
  }
}

/** Reads and checks a run's folder. @throws InputError `no-run`; TamperedError as `readRun` */
export async function readRunFolder(path: string): Promise<RunData> {
  const files = new Map<string, Uint8Array>();
  for (const name of [runFiles.protocol, runFiles.manifest])
    files.set(name, await readBytes(join(path, name), path));
  const names = await readdir(join(path, 'records')).catch((cause: unknown) => {
    throw noRun(path, cause);
  });
  for (const name of names.filter((entry) => entry.endsWith('.json')).sort()) {
    files.set(`records/${name}`, await readBytes(join(path, 'records', name), path));
  }
  for (const name of await supersededNames(path)) files.set(name, await readBytes(join(path, name), path));
  return readRun(files, path);
}

/** Files of superseded protocols in a run's folder, relative to it. */
export async function supersededNames(path: string): Promise<string[]> {
  const names = await readdir(join(path, 'superseded')).catch(() => [] as string[]);
  return names.filter((name) => /^[1-9]\d{0,3}\.yaml$/.test(name)).map((name) => `superseded/${name}`);
}

async function readBytes(path: string, run: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw noRun(run, cause);
  }
}

function noRun(path: string, cause: unknown): InputError {
  const reason = systemCode(cause) === 'ENOENT' ? 'it holds no whole run' : failureReason(cause);
  return new InputError('no-run', `Cannot read the run "${path}": ${reason}`, { path }, { cause });
}

function encode(value: unknown): Buffer {
  return Buffer.from(`${canonicalJson(value)}\n`, 'utf8');
}
