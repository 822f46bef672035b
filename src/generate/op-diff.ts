import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import type { Op } from '../backend/ops.js';
import { InputError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { parseJson } from '../base/json.js';
import type { OpRecord } from './op-recorder.js';

const recordSchema = z.strictObject({
  sequence: z.int().nonnegative(),
  pass: z.int().positive(),
  label: z.string(),
  kind: z.string(),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  byteOffset: z.int().nonnegative(),
  byteLength: z.int().nonnegative(),
  numerics: z.literal('native').optional(),
});

/** Where two recorded runs part. */
export interface OpDifference {
  readonly pass: number;
  /** `layers.3.second` names layer and op. */
  readonly label: string;
  readonly kinds: readonly [string, string];
  /** Index of the first F32 that differs, rows of the pass first; null where the sizes differ. */
  readonly index: number | null;
  readonly values: readonly [number | null, number | null];
  /** How many ops agreed before. */
  readonly agreed: number;
}

export interface OpComparison {
  readonly compared: number;
  /** Ops of one run without a counterpart of that pass and label in the other. */
  readonly unmatched: readonly [number, number];
  readonly first: OpDifference | null;
}

/**
 * Compares what ops gave in two runs recorded with `--trace-ops`, pass by pass, label by label. Policies divide an op
 * differently (rounds, pieces); of ops with one label in a pass the last holds the result, and that is compared. What
 * one run computed for active neurons alone (`active-outputs`, see `OpRecorder`) is compared by the gated product.
 *
 * @throws InputError `malformed-op-trace`, `unreadable-file`; UsageError `numerics-differ` for runs of different modes
 */
export async function compareOpTraces(first: string, second: string): Promise<OpComparison> {
  const [left, right] = [await readRecords(first), await readRecords(second)];
  const [modeOfLeft, modeOfRight] = [modeOf(left), modeOf(right)];
  if (modeOfLeft !== modeOfRight) {
    throw new UsageError(
      'numerics-differ',
      `Cannot compare "${first}" with "${second}": the first ran in ${modeOfLeft} numerics, the second in ${modeOfRight}, want one mode`,
      { first: modeOfLeft, second: modeOfRight },
    );
  }
  let compared = 0;
  for (const [key, a] of left) {
    const b = right.get(key);
    if (b === undefined || a.kind === partialKind || b.kind === partialKind) continue;
    if (a.sha256 !== b.sha256) {
      const difference = await locate(first, second, a, b);
      return {
        compared: compared + 1,
        unmatched: unmatchedOf(left, right),
        first: { ...difference, agreed: compared },
      };
    }
    compared++;
  }
  return { compared, unmatched: unmatchedOf(left, right), first: null };
}

/** An op that computes some columns of its output and leaves the others as they were. */
const partialKind: Op['kind'] = 'active-outputs';

function modeOf(records: ReadonlyMap<string, OpRecord>): 'portable' | 'native' {
  return [...records.values()].some(({ numerics }) => numerics === 'native') ? 'native' : 'portable';
}

function unmatchedOf(
  left: ReadonlyMap<string, OpRecord>,
  right: ReadonlyMap<string, OpRecord>,
): [number, number] {
  const missing = (from: ReadonlyMap<string, OpRecord>, other: ReadonlyMap<string, OpRecord>): number =>
    [...from.keys()].filter((key) => !other.has(key)).length;
  return [missing(left, right), missing(right, left)];
}

/** The last record of each (pass, label), in the order of their results. */
async function readRecords(directory: string): Promise<Map<string, OpRecord>> {
  const path = join(directory, 'ops.jsonl');
  const records = new Map<string, OpRecord>();
  const lines = createInterface({ input: createReadStream(path, 'utf8'), crlfDelay: Infinity });
  let number = 0;
  try {
    for await (const line of lines) {
      number++;
      const parsed = recordSchema.safeParse(parseJson(line, path));
      if (!parsed.success) throw malformed(path, number, parsed.error.issues[0]!.message);
      const key = `${parsed.data.pass} ${parsed.data.label}`;
      records.delete(key); // a later op of the label moves to its own place in the order
      const { numerics, ...record } = parsed.data;
      records.set(key, numerics === undefined ? record : { ...record, numerics });
    }
  } catch (cause) {
    if (cause instanceof InputError && cause.code === 'malformed-op-trace') throw cause;
    if (
      cause instanceof Error &&
      'code' in cause &&
      typeof cause.code === 'string' &&
      cause.code.startsWith('E')
    ) {
      throw new InputError(
        'unreadable-file',
        `Cannot read the op trace "${path}": ${failureReason(cause)}`,
        { path },
        { cause },
      );
    }
    throw malformed(path, number, cause instanceof Error ? cause.message : String(cause));
  }
  return records;
}

async function locate(
  first: string,
  second: string,
  a: OpRecord,
  b: OpRecord,
): Promise<Omit<OpDifference, 'agreed'>> {
  const place = { pass: a.pass, label: a.label, kinds: [a.kind, b.kind] as const };
  if (a.byteLength !== b.byteLength) return { ...place, index: null, values: [null, null] };
  const [left, right] = [await readValues(first, a), await readValues(second, b)];
  const bits = (values: Float32Array): Uint32Array =>
    new Uint32Array(values.buffer, values.byteOffset, values.length);
  const [leftBits, rightBits] = [bits(left), bits(right)];
  const index = leftBits.findIndex((word, at) => word !== rightBits[at]);
  if (index < 0)
    throw malformed(join(second, 'ops.jsonl'), b.sequence + 1, 'its digest does not match its values');
  return { ...place, index, values: [left[index]!, right[index]!] };
}

async function readValues(directory: string, record: OpRecord): Promise<Float32Array> {
  const path = join(directory, 'values.bin');
  let file: FileHandle | null = null;
  try {
    file = await open(path, 'r');
    const bytes = new Uint8Array(record.byteLength);
    const { bytesRead } = await file.read(bytes, 0, bytes.length, record.byteOffset);
    if (bytesRead < bytes.length) throw new Error(`it ends after ${record.byteOffset + bytesRead} bytes`);
    return new Float32Array(bytes.buffer);
  } catch (cause) {
    throw new InputError(
      'unreadable-file',
      `Cannot read the op values "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  } finally {
    await file?.close();
  }
}

function malformed(path: string, line: number, reason: string): InputError {
  return new InputError('malformed-op-trace', `Cannot read the op trace "${path}": line ${line}: ${reason}`, {
    path,
    line,
  });
}
