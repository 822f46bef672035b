import { lowBitCopy, thresholdOf } from '../acquire/place-certificates.js';
import type { Backend } from '../backend/backend.js';
import type { Op } from '../backend/ops.js';
import type { OpObserver } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import { roundedInputLayout } from '../checkpoint/low-bit-layout.js';
import type { LowBitModel } from '../checkpoint/low-bit-model.js';
import { type Span, spanOf } from '../memory/buffers.js';

/** What certificates of one low-bit copy came to in one layer, over all tokens. */
export interface CertificateCount {
  readonly id: string;
  /** Name of the low-bit copies. */
  readonly copies: string;
  /** Neurons times tokens. */
  readonly judged: number;
  readonly active: number;
  readonly uncertain: number;
  /** Active neurons that were certified inactive: 0, or the proof is wrong. */
  readonly wronglyCertified: number;
  readonly copyBytes: number;
  /** Of the matrix itself. */
  readonly matrixBytes: number;
}

/**
 * Certifies beside a session that computes every neuron: each first projection's input is certified again by the copies,
 * and the marks are held against the activations that came out. Works in passes whose first projections are dense.
 */
export class CertificateCounter {
  readonly #backend: Backend;
  readonly #models: readonly LowBitModel[];
  readonly #vector: (id: string) => Span;
  readonly #inputs = new Map<string, Uint8Array>(); // by layer, of the running pass
  readonly #counts = new Map<string, { -readonly [Key in keyof CertificateCount]: CertificateCount[Key] }>();

  constructor(backend: Backend, models: readonly LowBitModel[], vector: (id: string) => Span) {
    this.#backend = backend;
    this.#models = models;
    this.#vector = vector;
  }

  readonly observer: OpObserver = async ({ op, label }) => {
    const layer = /^layers\.\d+/.exec(label)?.[0];
    if (layer === undefined) return;
    if (op.kind === 'linear' && /\.(first|gate)$/.test(label)) {
      // Each piece of a streamed matrix says it again.
      this.#inputs.set(layer, (await this.#backend.read(op.x)).slice());
    }
    if (op.kind === 'activate') await this.#judge(layer, op);
  };

  counts(): CertificateCount[] {
    return [...this.#counts.values()];
  }

  async #judge(layer: string, op: Extract<Op, { kind: 'activate' }>): Promise<void> {
    const input = this.#inputs.get(layer);
    if (input === undefined) throw new DefectError(`Cannot certify ${layer}: its input was not seen`);
    const activations = new Float32Array((await this.#backend.read(op.x)).slice().buffer);
    for (const model of this.#models) {
      const matrix = model.description.matrices.find(
        ({ id }) => id === `${layer}.first` || id === `${layer}.gate`,
      )!;
      const copy = model.copy(matrix.id);
      if (copy === null) continue;
      const marks = await this.#marks(model, matrix.id, input, activations.length / matrix.outputs);
      const count = this.#count(model, matrix.id, copy.byteLength);
      activations.forEach((value, at) => {
        const active = value !== 0;
        const uncertain = marks[at] !== 0;
        count.judged += 1;
        if (active) count.active += 1;
        if (uncertain) count.uncertain += 1;
        else if (active) count.wronglyCertified += 1;
      });
    }
  }

  #count(model: LowBitModel, id: string, copyBytes: number) {
    const key = `${id} ${model.plan.name}`;
    let count = this.#counts.get(key);
    if (count === undefined) {
      const matrixBytes = model.rowsBytes(id);
      const none = { judged: 0, active: 0, uncertain: 0, wronglyCertified: 0 };
      count = { id, copies: model.plan.name, ...none, copyBytes, matrixBytes };
      this.#counts.set(key, count);
    }
    return count;
  }

  async #marks(model: LowBitModel, id: string, input: Uint8Array, rows: number): Promise<Float32Array> {
    const stored = model.copy(id)!;
    const { directions, byteOffset, byteLength } = stored;
    const matrix = model.description.matrices.find((one) => one.id === id)!;
    const { inputs, outputs, biasId } = matrix;
    const held: Span[] = [];
    const room = (bytes: number): Span => {
      const span = spanOf(
        this.#backend.allocate({ label: 'certificates', cause: 'workspace', byteLength: bytes }),
      );
      held.push(span);
      return span;
    };
    try {
      const span = room(byteLength);
      await this.#backend.transfer([{ file: model.copiesFile, position: byteOffset, target: span }]);
      const x = room(input.byteLength);
      this.#backend.write(x, input);
      const copy = lowBitCopy(stored, matrix, span);
      const rounded = room(roundedInputLayout(rows, inputs, directions).byteLength);
      const out = room(rows * outputs * 4);
      const bias = biasId === null ? null : this.#vector(biasId);
      const threshold = thresholdOf(model.description.config);
      await this.#backend.submit([
        { label: `${id}.rounded`, op: { kind: 'round-input', rows, x, copy, out: rounded } },
        {
          label: `${id}.certificate`,
          op: { kind: 'certify', rows, copy, input: rounded, bias, threshold, out },
        },
      ]);
      return new Float32Array((await this.#backend.read(out)).slice().buffer);
    } finally {
      for (const { buffer } of held) this.#backend.release(buffer);
    }
  }
}
