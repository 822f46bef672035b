import type { OpObserver } from '../backend/pass.js';

/** Rows a layer that directions are chosen from: the leading 64 of a layer's inputs change little with more. */
const mostRows = 256;

/** Keeps inputs of first projections and gates, evenly over a text, up to 256 a layer. */
export class InputSampler {
  readonly #every: number;
  readonly #samples = new Map<string, { seen: number; rows: Float32Array[] }>();

  /** `tokens` that the text has. */
  constructor(tokens: number) {
    this.#every = Math.max(1, Math.floor(tokens / mostRows));
  }

  readonly observer: OpObserver = async ({ op, label }, backend) => {
    if (op.kind !== 'linear' || !/^layers\.\d+\.(first|gate)$/.test(label)) return;
    if (op.inputBegin !== 0 || op.outOffset !== 0) return; // another piece of the same product
    const values = new Float32Array((await backend.read(op.x)).slice().buffer);
    const sample = this.#samples.get(label) ?? { seen: 0, rows: [] };
    this.#samples.set(label, sample);
    for (let t = 0; t < op.rows; t += 1) {
      const kept = sample.seen % this.#every === 0 && sample.rows.length < mostRows;
      sample.seen += 1;
      if (kept) sample.rows.push(values.slice(t * op.xStride, (t + 1) * op.xStride));
    }
  };

  /** By matrix: rows of its inputs. */
  samples(): ReadonlyMap<string, readonly Float32Array[]> {
    return new Map(Array.from(this.#samples, ([id, { rows }]) => [id, rows]));
  }
}
