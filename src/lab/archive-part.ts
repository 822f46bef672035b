import type { z } from 'zod';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { InputError, TamperedError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import type { Members } from './archive-container.js';
import { archiveFiles, member } from './archive-layout.js';
import { type ProtocolFile, parseProtocol } from './protocol-file.js';
import { type Manifest, manifestSchema, type RunRecord, recordSchema } from './record-format.js';

/** A run as an archive holds it: read strictly, its chain of records whole. Nothing of it is believed by that. */
export interface RunPart {
  /** '' for the run itself, `aa/`, or `attempts/1/`. */
  readonly prefix: string;
  readonly protocol: ProtocolFile;
  /** SHA-256 of the protocol's bytes, as they lie in the archive. */
  readonly protocolFileDigest: string;
  readonly manifest: Manifest;
  readonly manifestDigest: string;
  readonly records: readonly RunRecord[];
  /** SHA-256 of the last record, of the manifest where there is none: it fixes all before it. */
  readonly headDigest: string;
}

/**
 * Reads the part of an archive under a prefix.
 * @throws TamperedError `archive-protocol-invalid`, `archive-protocol-changed`, `archive-manifest-invalid`,
 *   `archive-record-invalid`, `archive-chain-broken`
 */
export function readPart(members: Members, prefix: string): RunPart {
  const protocolBytes = member(members, prefix + archiveFiles.protocol);
  const protocol = readProtocol(protocolBytes, prefix + archiveFiles.protocol);
  const manifestName = prefix + archiveFiles.manifest;
  const manifestBytes = member(members, manifestName);
  const manifest = readLine(manifestBytes, manifestName, manifestSchema, 'archive-manifest-invalid');
  if (manifest.protocol.digest !== protocol.digest || manifest.protocol.name !== protocol.protocol.name) {
    throw new TamperedError(
      'archive-protocol-changed',
      `Checking "${manifestName}" failed: it is of protocol "${manifest.protocol.name}" ${manifest.protocol.digest}, the archive holds "${protocol.protocol.name}" ${protocol.digest}`,
    );
  }
  const manifestDigest = sha256Hex(manifestBytes);
  const { records, headDigest } = readChain(members, prefix + archiveFiles.records, manifestDigest);
  return {
    prefix,
    protocol,
    protocolFileDigest: sha256Hex(protocolBytes),
    manifest,
    manifestDigest,
    records,
    headDigest,
  };
}

function readProtocol(bytes: Uint8Array, name: string): ProtocolFile {
  let file: ProtocolFile;
  try {
    file = parseProtocol(bytes, name);
  } catch (cause) {
    if (!(cause instanceof InputError)) throw cause;
    throw new TamperedError('archive-protocol-invalid', cause.message, cause.data, { cause });
  }
  const { frozen } = file.protocol;
  if (frozen?.digest === file.digest) return file;
  throw new TamperedError(
    'archive-protocol-changed',
    frozen === undefined
      ? `Checking "${name}" failed: it is not frozen`
      : `Checking "${name}" failed: it was frozen as ${frozen.digest} and is ${file.digest} now`,
  );
}

function readChain(
  members: Members,
  name: string,
  manifestDigest: string,
): { records: RunRecord[]; headDigest: string } {
  const bytes = Buffer.from(member(members, name));
  const records: RunRecord[] = [];
  let headDigest = manifestDigest;
  let at = 0;
  while (at < bytes.length) {
    const end = bytes.indexOf(0x0a, at);
    const line = end < 0 ? bytes.subarray(at) : bytes.subarray(at, end + 1);
    const place = `${name} line ${records.length + 1}`;
    const record = readLine(line, place, recordSchema, 'archive-record-invalid');
    if (record.sequence !== records.length + 1 || record.previous !== headDigest) {
      throw new TamperedError(
        'archive-chain-broken',
        `Checking "${name}" failed: record ${records.length + 1} says that it is number ${record.sequence} behind ${record.previous}, it stands behind ${headDigest}`,
      );
    }
    records.push(record);
    headDigest = sha256Hex(line);
    at += line.length;
  }
  return { records, headDigest };
}

/** One canonical JSON value and a newline. */
function readLine<T>(bytes: Uint8Array, name: string, schema: z.ZodType<T>, code: string): T {
  const refuse = (problem: string, cause?: unknown): TamperedError =>
    new TamperedError(code, `Checking "${name}" failed: ${problem}`, { name }, { cause });
  let value: unknown;
  try {
    value = parseJson(bytes, name);
  } catch (cause) {
    if (!(cause instanceof InputError)) throw cause;
    throw refuse(cause.message, cause);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    throw refuse(`${issue.path.join('.') || 'the value'}: ${issue.message}`, parsed.error);
  }
  if (`${canonicalJson(value)}\n` !== Buffer.from(bytes).toString('utf8')) {
    throw refuse('it is not one line of canonical JSON');
  }
  return parsed.data;
}
