import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { normalQuantile } from '../../src/base/normal.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import { planWeights, type WeightsPlan, weightsAlignment } from '../../src/checkpoint/prepared-layout.js';
import type { PreparedModel, PreparedTensor } from '../../src/checkpoint/prepared-model.js';
import { transposeTile } from '../../src/checkpoint/transpose.js';
import { describe as describeShape, optConfig } from '../acquire/support/opt-shape.js';

const mebibyte = 1024 * 1024;

/** Published OPT sizes, all with 50,272 tokens. */
export const shapes = {
  '1.3b': { hiddenSize: 2048, ffnSize: 8192, layers: 24, heads: 32 },
  '2.7b': { hiddenSize: 2560, ffnSize: 10_240, layers: 32, heads: 32 },
  /** For profilers, which run every kernel many times. */
  '2.7b-two-layers': { hiddenSize: 2560, ffnSize: 10_240, layers: 2, heads: 32 },
  '6.7b': { hiddenSize: 4096, ffnSize: 16_384, layers: 32, heads: 32 },
  '13b': { hiddenSize: 5120, ffnSize: 20_480, layers: 40, heads: 40 },
  /** For trying the benchmark itself. */
  tiny: { hiddenSize: 256, ffnSize: 1024, layers: 4, heads: 4 },
} as const;
export type ShapeName = keyof typeof shapes;

export const shapeNames = Object.keys(shapes) as ShapeName[];

/** A prepared model of random weights; how many of its neurons are active can be set again, in its file and in sessions. */
export interface ShapeModel {
  readonly name: ShapeName;
  readonly prepared: PreparedModel;
  readonly weightBytes: number;
  setActiveShare(share: number): void;
  /** First projections' bias that makes so many neurons active. */
  biasFor(share: number): number;
  remove(): void;
}

/**
 * Random weights in the prepared layout: one block of bytes over and over, norms of 1. Pre-activations of the first
 * projections are normal with the deviation of a row's norm, so their bias decides how many are positive. In memory
 * where the system has a file system there that is large enough. Matrices of layers beyond `distinctLayers` lie where those
 * of earlier ones do: a model of 26 GB is written in a second, and every layer still has its own bytes where it is opened.
 * `room` gives the folder for so many bytes.
 */
export function writeShape(
  name: ShapeName,
  distinctLayers = Number.POSITIVE_INFINITY,
  room: (byteLength: number) => string = roomFor,
): ShapeModel {
  const vocabSize = name === 'tiny' ? 1000 : 50_272;
  const description = describeShape(optConfig({ ...shapes[name], vocabSize }), 'f16');
  const plan = planWeights(description);
  const places = sharedPlaces(plan, distinctLayers);
  // Certificates lie beside: first projections once more, and their copies in half the bytes.
  const directory = mkdtempSync(join(room(places.byteLength + plan.byteLength * 0.6), 'waybill-shape-'));
  const path = join(directory, 'weights');
  const descriptor = openSync(path, 'w+');
  const block = halves(32 * mebibyte);
  const byId = new Map<string, PreparedTensor>();
  let at = 0;
  for (const { id, type, shape, byteLength } of plan.tensors) {
    const { byteOffset, shared } = places.of(id);
    byId.set(id, { id, type, shape, byteOffset, byteLength, sha256: '', finite: true });
    if (shared) continue;
    if (type === 'f32') {
      writeFloats(descriptor, byteOffset, byteLength, id.endsWith('.gamma') ? 1 : 0);
      continue;
    }
    const twin = id === 'head' ? byId.get(tableOfHead(description)) : undefined;
    if (twin !== undefined) {
      writeTransposed(descriptor, twin, byteOffset);
      continue;
    }
    for (let done = 0; done < byteLength; ) {
      const from = at % block.byteLength;
      const length = Math.min(block.byteLength - from, byteLength - done);
      writeSync(descriptor, block, from, length, byteOffset + done);
      done += length;
      at += length + 2 * 1013;
    }
  }
  const deviation = Math.sqrt((shapes[name].hiddenSize * largestWeight ** 2) / 3);
  const biasFor = (share: number) => -deviation * normalQuantile(1 - share);
  return {
    name,
    weightBytes: plan.byteLength,
    biasFor,
    setActiveShare: (share) => {
      for (const { id, byteOffset, byteLength } of byId.values()) {
        if (id.endsWith('first.bias')) writeFloats(descriptor, byteOffset, byteLength, biasFor(share));
      }
    },
    prepared: {
      directory,
      description,
      manifestDigest: createHash('sha256').update(`${name} ${plan.byteLength}`).digest('hex'),
      sourceDigest: '',
      sourceFiles: [],
      weightsFile: { path, descriptor, byteLength: places.byteLength },
      tensor: (id) => byId.get(id)!,
      close: async () => {}, // several arms share it
    },
    remove: () => {
      closeSync(descriptor);
      rmSync(directory, { recursive: true });
    },
  };
}

/** Where tensors lie if only so many layers have matrices of their own; `shared`: another tensor's bytes stand for it. */
function sharedPlaces({ tensors }: WeightsPlan, distinctLayers: number) {
  const offsets = new Map<string, number>();
  let end = 0;
  const ownerOf = (id: string, type: string): string =>
    type === 'f32'
      ? id
      : id.replace(/^layers\.(\d+)/, (_, layer: string) => `layers.${Number(layer) % distinctLayers}`);
  const owners = new Map(tensors.map(({ id, type }) => [id, ownerOf(id, type)]));
  for (const { id, byteLength } of tensors) {
    if (owners.get(id) !== id) continue;
    offsets.set(id, end);
    end = Math.ceil((end + byteLength) / weightsAlignment) * weightsAlignment;
  }
  return {
    byteLength: end,
    of: (id: string) => ({ byteOffset: offsets.get(owners.get(id)!)!, shared: owners.get(id) !== id }),
  };
}

/** The table whose weights a tied head holds: a resident head is where tokens are looked up, so the two must agree. */
function tableOfHead({ matrices, tables }: ModelDescription): string {
  const head = matrices.find(({ role }) => role === 'head');
  return tables.find(({ sourceTensor }) => sourceTensor === head?.sourceTensor)?.id ?? '';
}

/** 16-bit numbers, read back from where they were written. */
export function writeTransposed(
  descriptor: number,
  { shape, byteOffset, byteLength }: PreparedTensor,
  to: number,
): void {
  const [rows, columns] = shape as [number, number];
  const source = new ArrayBuffer(byteLength);
  const target = new ArrayBuffer(byteLength);
  readSync(descriptor, new Uint8Array(source), 0, byteLength, byteOffset);
  transposeTile(source, target, rows, columns, 2);
  writeSync(descriptor, new Uint8Array(target), 0, byteLength, to);
}

/** A folder in memory where it has room for the weights and as much again, else on disk. */
export function roomFor(byteLength: number): string {
  if (existsSync('/dev/shm')) {
    const { bavail, bsize } = statfsSync('/dev/shm');
    if (bavail * bsize > byteLength * 1.1) return '/dev/shm';
  }
  return tmpdir();
}

function writeFloats(descriptor: number, byteOffset: number, byteLength: number, value: number): void {
  const values = new Float32Array(byteLength / 4).fill(value);
  writeSync(descriptor, new Uint8Array(values.buffer), 0, byteLength, byteOffset);
}

const largestWeight = 0.0342;

/** Uniform in +-0.0342: at a width of 2,560 variance 1 / 2560. */
function halves(byteLength: number): Uint8Array {
  const values = new Uint16Array(byteLength / 2);
  let state = 12345;
  for (let index = 0; index < values.length; index += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    // The top bits: the low ones of such a generator repeat within a row.
    const magnitude = ((state >>> 9) & 0x3fffff) / 2 ** 22;
    values[index] = toHalf(magnitude * largestWeight) | ((state >>> 31) << 15);
  }
  return new Uint8Array(values.buffer);
}

/** Positive normal numbers, truncated; smaller ones become zero. */
function toHalf(value: number): number {
  if (value < 2 ** -14) return 0;
  const exponent = Math.floor(Math.log2(value));
  return ((exponent + 15) << 10) | Math.floor((value / 2 ** exponent - 1) * 1024);
}
