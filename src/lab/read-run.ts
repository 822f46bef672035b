import type { z } from 'zod';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { TamperedError, WaybillError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { parseJson } from '../base/json.js';
import { checkFrozen } from './freeze.js';
import { plannedCount, plannedSlots } from './planned-slots.js';
import { checkProtocolChain } from './protocol-chain.js';
import { type ProtocolFile, parseProtocol } from './protocol-file.js';
import {
  type Manifest,
  manifestSchema,
  type RunRecord,
  recordNamePattern,
  recordSchema,
  runFiles,
} from './record-format.js';

/** A run as its files say it, every digest and link checked. */
export interface RunData {
  readonly protocolFile: ProtocolFile;
  /** What it supersedes, the nearest first; the chain holds. */
  readonly superseded: readonly ProtocolFile[];
  readonly manifest: Manifest;
  readonly records: readonly RunRecord[];
  /** SHA-256 of the last file of the chain. */
  readonly head: string;
}

/**
 * Reads a run from its files by name (docs/formats/lab-run.md); of a folder or of an archive. Checks that the protocol
 * is the frozen one that the manifest names, that the schedule is the protocol's, and the chain of records.
 * @throws TamperedError with the first thing that does not hold
 */
export function readRun(files: ReadonlyMap<string, Uint8Array>, name: string): RunData {
  const protocolFile = readProtocol(required(files, runFiles.protocol, name), runFiles.protocol);
  const superseded = supersededOf(files);
  checkProtocolChain(protocolFile, superseded);
  const manifestBytes = required(files, runFiles.manifest, name);
  const manifest = readCanonical(manifestBytes, runFiles.manifest, manifestSchema);
  if (
    manifest.protocol.digest !== protocolFile.digest ||
    manifest.protocol.name !== protocolFile.protocol.name
  ) {
    throw new TamperedError(
      'protocol-mismatch',
      `Cannot read the run "${name}": its manifest names the protocol ${manifest.protocol.digest}, and "${runFiles.protocol}" is ${protocolFile.digest}`,
    );
  }
  const { items } = protocolFile.protocol.workload;
  if (Array.isArray(items) && items.length !== manifest.items.length) {
    throw new TamperedError(
      'schedule-mismatch',
      `Cannot read the run "${name}": it has ${manifest.items.length} workload items, the protocol has ${items.length}`,
    );
  }
  // The count first: an archive may ask for more trials than it holds, and planning them would take long
  if (
    manifest.slots.length !== plannedCount(protocolFile.protocol, manifest.items.length) ||
    canonicalJson(manifest.slots) !==
      canonicalJson(plannedSlots(protocolFile.protocol, manifest.items.length))
  ) {
    throw new TamperedError(
      'schedule-mismatch',
      `Cannot read the run "${name}": its schedule is not the one that the protocol gives`,
    );
  }
  return { protocolFile, superseded, manifest, ...readChain(files, sha256Hex(manifestBytes)) };
}

function readChain(files: ReadonlyMap<string, Uint8Array>, first: string): Pick<RunData, 'records' | 'head'> {
  const numbers = [...files.keys()].flatMap((path) => {
    const match = recordNamePattern.exec(path);
    return match === null ? [] : [Number(match[1])];
  });
  const records: RunRecord[] = [];
  let head = first;
  for (let sequence = 1; sequence <= numbers.length; sequence++) {
    const path = runFiles.record(sequence);
    const bytes = files.get(path);
    if (bytes === undefined)
      throw new TamperedError(
        'broken-chain',
        `Cannot read the run: "${path}" is missing, and later records are there`,
        { path },
      );
    const record = readCanonical(bytes, path, recordSchema);
    if (record.sequence !== sequence) {
      throw new TamperedError(
        'broken-chain',
        `Cannot read "${path}": it says that it is record ${record.sequence}`,
        { path },
      );
    }
    if (record.previous !== head) {
      throw new TamperedError(
        'broken-chain',
        `Cannot read "${path}": it follows a file with SHA-256 ${record.previous}, and the one before it has ${head}`,
        { path },
      );
    }
    records.push(record);
    head = sha256Hex(bytes);
  }
  return { records, head };
}

/** One JSON file of a run: strict, canonical, of its schema. */
function readCanonical<Schema extends z.ZodType>(
  bytes: Uint8Array,
  path: string,
  schema: Schema,
): z.infer<Schema> {
  let value: unknown;
  try {
    value = parseJson(bytes, path, { length: 64 * 1024 * 1024 });
  } catch (cause) {
    throw broken(path, failureReason(cause), cause);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw broken(path, `${issue?.path.join('.')}: ${issue?.message}`, parsed.error);
  }
  const canonical = Buffer.from(`${canonicalJson(value)}\n`, 'utf8');
  if (!canonical.equals(bytes)) throw broken(path, 'its bytes are not canonical JSON and one newline');
  return parsed.data;
}

function supersededOf(files: ReadonlyMap<string, Uint8Array>): ProtocolFile[] {
  const found: ProtocolFile[] = [];
  for (;;) {
    const path = runFiles.superseded(found.length + 1);
    const bytes = files.get(path);
    if (bytes === undefined) return found;
    found.push(readProtocol(bytes, path));
  }
}

function readProtocol(bytes: Uint8Array, path: string): ProtocolFile {
  try {
    const file = parseProtocol(bytes, path);
    checkFrozen(file);
    return file;
  } catch (error) {
    if (error instanceof TamperedError || !(error instanceof WaybillError)) throw error;
    throw broken(path, error.message, error);
  }
}

function required(files: ReadonlyMap<string, Uint8Array>, path: string, name: string): Uint8Array {
  const bytes = files.get(path);
  if (bytes !== undefined) return bytes;
  throw new TamperedError('incomplete-run', `Cannot read the run "${name}": it has no "${path}"`, { path });
}

function broken(path: string, problem: string, cause?: unknown): TamperedError {
  return new TamperedError('malformed-record', `Cannot read "${path}": ${problem}`, { path }, { cause });
}
