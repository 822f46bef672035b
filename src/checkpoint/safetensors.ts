import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonValue, parseJson } from '../base/json.js';
import type { StoredType } from '../base/stored-type.js';
import { elementCount, type StoredTensor } from './stored-tensor.js';
import type { WeightFile } from './weight-file.js';

/** The format's own limit (safetensors, `MAX_HEADER_SIZE`). */
export const largestHeaderBytes = 100_000_000;

const types: Readonly<Record<string, StoredType>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };

/** Bits an element, for the types of the format (safetensors 0.6). Others are let by unless they are needed. */
const elementBits: Readonly<Record<string, number>> = {
  BOOL: 8,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  C64: 64,
  F64: 64,
  I64: 64,
  U64: 64,
};

/**
 * Reads the header of a safetensors file (https://github.com/huggingface/safetensors#format): 8 bytes of little-endian
 * length, JSON, then tensor data without holes. Loads the header alone. Throws `InputError` with a code that begins
 * with `safetensors-` (or `json-`) naming the file and the tensor.
 */
export async function readSafetensors(file: WeightFile): Promise<StoredTensor[]> {
  const { name } = file;
  if (file.byteLength < 8) {
    throw refuse('safetensors-truncated', name, `it has ${file.byteLength} bytes, at least 8 are wanted`);
  }
  const prefix = new Uint8Array(8);
  await file.read(0, prefix);
  const headerBytes = new DataView(prefix.buffer).getBigUint64(0, true);
  if (headerBytes > BigInt(largestHeaderBytes)) {
    throw refuse(
      'safetensors-header-length',
      name,
      `its header length is ${headerBytes} bytes, at most ${largestHeaderBytes} are allowed`,
      { headerBytes: headerBytes.toString() },
    );
  }
  const dataBegin = 8 + Number(headerBytes);
  if (dataBegin > file.byteLength) {
    throw refuse(
      'safetensors-truncated',
      name,
      `its header ends at byte ${dataBegin}, the file at ${file.byteLength}`,
    );
  }
  const header = new Uint8Array(Number(headerBytes));
  await file.read(8, header);
  if (header[0] !== 0x7b) {
    throw refuse('safetensors-header', name, 'its header does not begin with "{"');
  }
  const tensors = parseHeader(parseJson(header, `${name} header`, { depth: 8 }), name, dataBegin);
  checkCoverage(tensors, name, dataBegin, file.byteLength);
  return tensors;
}

function parseHeader(header: JsonValue, file: string, dataBegin: number): StoredTensor[] {
  if (!isJsonObject(header)) throw refuse('safetensors-header', file, 'its header is not an object');
  const tensors: StoredTensor[] = [];
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') checkMetadata(entry, file);
    else tensors.push(parseEntry(name, entry, file, dataBegin));
  }
  return tensors;
}

/** The reference reader takes null for absent, and strings alone as values. */
function checkMetadata(metadata: JsonValue, file: string): void {
  if (metadata === null) return;
  if (isJsonObject(metadata) && Object.values(metadata).every((value) => typeof value === 'string')) return;
  throw refuse('safetensors-metadata', file, '"__metadata__" is not an object of strings');
}

function parseEntry(name: string, entry: JsonValue, file: string, dataBegin: number): StoredTensor {
  const fail = (problem: string) =>
    refuse('safetensors-entry', file, `tensor ${JSON.stringify(name)} ${problem}`, { tensor: name });
  if (!isJsonObject(entry)) throw fail('is not an object');
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string') throw fail('has no "dtype" string');
  if (!isSizes(shape)) throw fail('has no "shape" of whole numbers below 2^53');
  if (!isSizes(offsets) || offsets.length !== 2) {
    throw fail('has no "data_offsets" of two whole numbers below 2^53');
  }
  const [begin, end] = offsets as [number, number];
  if (end < begin) throw fail(`ends at byte ${end}, before its begin ${begin}`);
  const byteLength = end - begin;
  const bits = Object.hasOwn(elementBits, dtype) ? elementBits[dtype] : undefined;
  const count = elementCount(shape);
  if (count === null || (bits !== undefined && !Number.isSafeInteger(count * bits))) {
    throw fail(`has the shape [${shape.join(', ')}], whose element count passes 2^53`);
  }
  if (bits !== undefined && (count * bits) / 8 !== byteLength) {
    throw fail(`has ${byteLength} bytes, ${dtype} [${shape.join(', ')}] takes ${(count * bits) / 8}`);
  }
  return {
    name,
    dtype,
    type: Object.hasOwn(types, dtype) ? types[dtype]! : null,
    shape,
    file,
    byteOffset: dataBegin + begin,
    byteLength,
    unreadable: null,
  };
}

function isSizes(value: JsonValue | undefined): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && (item as number) >= 0);
}

/** Tensors must tile the data exactly, as the reference reader demands: no overlap, no hole, no tail. */
function checkCoverage(
  tensors: readonly StoredTensor[],
  file: string,
  dataBegin: number,
  byteLength: number,
): void {
  const sorted = [...tensors].sort((a, b) => a.byteOffset - b.byteOffset || a.byteLength - b.byteLength);
  let end = dataBegin;
  let previous = '';
  for (const tensor of sorted) {
    const name = JSON.stringify(tensor.name);
    if (tensor.byteOffset + tensor.byteLength > byteLength) {
      throw refuse(
        'safetensors-truncated',
        file,
        `tensor ${name} ends at byte ${tensor.byteOffset + tensor.byteLength}, the file at ${byteLength}`,
        { tensor: tensor.name },
      );
    }
    if (tensor.byteOffset < end) {
      throw refuse('safetensors-overlap', file, `tensors ${JSON.stringify(previous)} and ${name} overlap`, {
        tensor: tensor.name,
      });
    }
    if (tensor.byteOffset > end) {
      throw refuse(
        'safetensors-hole',
        file,
        `${tensor.byteOffset - end} bytes before tensor ${name} belong to no tensor`,
        { tensor: tensor.name },
      );
    }
    end = tensor.byteOffset + tensor.byteLength;
    previous = tensor.name;
  }
  if (end !== byteLength) {
    throw refuse('safetensors-hole', file, `${byteLength - end} bytes at its end belong to no tensor`);
  }
}

function refuse(code: string, file: string, problem: string, data: Record<string, unknown> = {}): InputError {
  return new InputError(code, `Reading "${file}" failed: ${problem}`, { file, ...data });
}
