import type { PassKind } from '../../src/acquire/weight-source.js';
import type { Backend } from '../../src/backend/backend.js';
import { type OpObserver, Pass } from '../../src/backend/pass.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import { KvCache } from '../../src/memory/kv-cache.js';
import type { BatchRow } from '../../src/model/batch.js';
import type { Model } from '../../src/model/model.js';
import { createModel } from '../../src/model/open-model.js';
import { openWorkspace, planWorkspace } from '../../src/model/workspace.js';
import { ResidentSource, type SecondProjections, type StoredValues } from './resident-source.js';
import type { TinyWeights } from './tiny-models.js';

export interface HarnessOptions {
  readonly capacity: number;
  readonly maxRows: number;
  readonly maxLogitsRows?: number;
  readonly slots?: number;
  readonly kv?: 'f16' | 'f32';
  readonly mode?: SecondProjections;
}

/** A model with everything resident, on a backend that the caller closes. */
export class Harness {
  readonly model: Model;
  readonly source: ResidentSource;
  readonly #backend: Backend;

  constructor(
    backend: Backend,
    description: ModelDescription,
    load: (id: string) => StoredValues,
    options: HarnessOptions,
  ) {
    const { capacity, maxRows, maxLogitsRows = maxRows, slots = 1, kv = 'f32', mode = 'dense' } = options;
    const { layers, kvHeads, headDim } = description.config;
    this.#backend = backend;
    const limits = { maxRows, maxLogitsRows, capacity, parallelism: backend.parallelism };
    const workspace = openWorkspace(backend, planWorkspace(description, limits));
    const cache = new KvCache(backend, { layers, kvHeads, headDim, capacity, slots, type: kv });
    this.source = new ResidentSource(backend, description, load, { maxRows, mode });
    this.model = createModel(description, this.source, workspace, cache, backend);
  }

  static tiny(backend: Backend, weights: TinyWeights, options: HarnessOptions): Harness {
    return new Harness(backend, weights.description, (id) => f32(weights.values.get(id)!), options);
  }

  /** One pass; the logits of the wanted rows (all rows unless said), copied to the host. */
  async run(
    rows: readonly BatchRow[],
    logitsRows: readonly number[] = rows.map((_, index) => index),
    kind: PassKind = rows.length === 1 ? 'decode' : 'prefill',
    observer: OpObserver | null = null,
  ): Promise<Float32Array[]> {
    const pass = new Pass(this.#backend, observer);
    await this.source.begin();
    const span = await this.model.forward(pass, { kind, rows, logitsRows });
    await this.source.end(pass);
    if (logitsRows.length === 0) return [];
    const bytes = await this.#backend.read(span);
    const { vocabSize } = this.model.limits;
    const floats = new Float32Array(bytes.slice().buffer);
    return logitsRows.map((_, row) => floats.slice(row * vocabSize, (row + 1) * vocabSize));
  }

  /** A sequence in passes of `chunk` tokens; the logits of every position. */
  async sequence(
    ids: readonly number[],
    chunk: number,
    place: { slot?: number; from?: number } = {},
  ): Promise<Float32Array[]> {
    const { slot = 0, from = 0 } = place;
    const logits: Float32Array[] = [];
    for (let begin = from; begin < ids.length; begin += chunk) {
      const rows = ids
        .slice(begin, begin + chunk)
        .map((tokenId, index) => ({ slot, position: begin + index, tokenId }));
      logits.push(...(await this.run(rows)));
    }
    return logits;
  }
}

function f32(values: Float32Array): StoredValues {
  return { type: 'f32', bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) };
}

/** |a - b| / |b|, Euclidean. */
export function relativeL2(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let difference = 0;
  let size = 0;
  for (let i = 0; i < b.length; i++) {
    difference += (a[i]! - b[i]!) ** 2;
    size += b[i]! ** 2;
  }
  return Math.sqrt(difference / size);
}

/** The largest value's index, the lowest of equal ones. */
export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}

/** Bytes of logits rows, for comparing by equality. */
export function bytesOfRows(rows: readonly Float32Array[]): string[] {
  return rows.map((row) => Buffer.from(row.buffer, row.byteOffset, row.byteLength).toString('base64'));
}
