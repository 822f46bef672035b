import type { Backend } from '../backend/backend.js';
import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { MoveCause } from '../memory/causes.js';
import type { Ledger } from '../memory/ledger.js';
import { activeInputsOp, type BoundMatrix, matrixOperand } from './bound-matrix.js';
import { chargeHits } from './held-rows.js';
import type { DirectSpans } from './open-direct.js';
import { directPaths } from './policy.js';
import type { FedMatrix } from './row-feed.js';
import type { GatedLinearRequest, LinearRequest, PassKind } from './weight-source.js';

export interface DirectRowsParts {
  readonly backend: Backend;
  readonly ledger: Ledger;
  /** Matrices with the host memory that ops read them from. */
  readonly mirrors: ReadonlyMap<FedMatrix, Span>;
  /** An active set for each matrix, so that all counts are there when a pass ends. */
  readonly spans: DirectSpans;
}

/**
 * Rows of active neurons that ops read by themselves from host memory: nothing is moved ahead, and the host learns how
 * many there were when the pass has ended.
 */
export class DirectRows {
  readonly #parts: DirectRowsParts;
  readonly #places: ReadonlyMap<BoundMatrix, number>;
  readonly #used: FedMatrix[] = [];
  /** Matrices of the last whole pass of each kind, in the order of use. */
  readonly #usedIn = new Map<PassKind, readonly FedMatrix[]>();

  constructor(parts: DirectRowsParts) {
    this.#parts = parts;
    this.#places = new Map([...parts.mirrors.keys()].map((matrix, place) => [matrix, place]));
    const numbers = Int32Array.from({ length: parts.mirrors.size }, (_, number) => number);
    parts.backend.write(parts.spans.numbers, new Uint8Array(numbers.buffer));
  }

  /**
   * Whether a pass of so many rows reads this matrix here. Retained rows of prompts are not: they may be computed with in
   * native numerics.
   */
  serves(matrix: BoundMatrix, rows: number, kind: PassKind): matrix is FedMatrix {
    const path = matrix.placed.paths[kind];
    if (!directPaths.has(path) || (path === 'retained' && kind === 'prefill')) return false;
    return rows <= (this.#parts.backend.hostTier?.directRows ?? 0) && this.#places.has(matrix);
  }

  sparseLinear(pass: Pass, matrix: FedMatrix, request: LinearRequest): void {
    const { id, inputs } = matrix.description;
    const active = this.#compact(pass, matrix, request.rows, inputs, request.x);
    const mirror = this.#parts.mirrors.get(matrix)!;
    const op = activeInputsOp(matrix, request, mirror, active);
    const { held } = matrix;
    if (held === undefined) {
      pass.emit(id, op);
      return;
    }
    const { rows, x, outputs, out, bias, residual } = op;
    const { index, span } = held;
    pass.emit(id, {
      kind: 'held-inputs',
      rows,
      x,
      active,
      index,
      held: span,
      outputs,
      matrix: op.matrix,
      out,
      bias,
      residual,
    });
  }

  gatedLinear(pass: Pass, matrix: FedMatrix, request: GatedLinearRequest): void {
    const { id, inputs, outputs } = matrix.description;
    const active = this.#compact(pass, matrix, request.rows, outputs, request.gate);
    const common = {
      rows: request.rows,
      x: request.x,
      inputs,
      active,
      matrix: matrixOperand(matrix.description, this.#parts.mirrors.get(matrix)!),
      out: request.out,
      outStride: outputs,
      bias: matrix.bias,
    };
    if (matrix.held === undefined) {
      pass.emit(id, { ...common, kind: 'active-outputs', listBegin: 0, listEnd: -1, slots: null });
    } else {
      const { index, span } = matrix.held;
      pass.emit(id, { ...common, kind: 'held-outputs', index, held: span });
    }
  }

  /**
   * Ends a pass: submits what is left, then charges the rows that its ops have read. `repeated`: the pass has the ops of
   * the one of its kind before, these here among them.
   */
  async end(pass: Pass, kind: PassKind, repeated: boolean): Promise<void> {
    const emitted = this.#used.splice(0);
    const used = repeated ? (this.#usedIn.get(kind) ?? []) : emitted;
    this.#usedIn.set(kind, used);
    if (used.length === 0) {
      await pass.flush();
      return;
    }
    const { backend, spans, ledger } = this.#parts;
    const { sets, neurons, counts, numbers } = spans;
    // Words are copied as they are: a gather of F32 changes no bit.
    if (!repeated) {
      pass.emit('active-counts', {
        kind: 'gather',
        rows: this.#places.size,
        columns: 1,
        table: sets,
        tableRows: this.#places.size,
        type: 'f32',
        rowStride: 1 + neurons,
        columnStride: 1,
        ids: numbers,
        out: subspan(counts, 0, 4 * this.#places.size),
      });
    }
    const done = pass.flush();
    if (pass.observed) await done; // whose ops are submitted one by one, each once the one in front was seen
    const [bytes] = await Promise.all([backend.read(counts), done]);
    const found = new Uint32Array(bytes.slice().buffer);
    ledger.move('active-set-readback', bytes.byteLength, used.length);
    for (const matrix of used) {
      const place = this.#places.get(matrix)!;
      const rows = found[place]!;
      const { id, layer, inputs, outputs, neuronAxis } = matrix.description;
      const most = neuronAxis === 'inputs' ? inputs : outputs;
      if (rows > most) throw new DefectError(`Cannot count the rows of "${id}": ${rows} of ${most} neurons`);
      const lying = matrix.held === undefined ? 0 : found[this.#places.size + place]!;
      if (lying > rows)
        throw new DefectError(`Cannot count the rows of "${id}": ${lying} of ${rows} have places`);
      chargeHits(this.#parts, matrix, lying);
      const moved = rows - lying;
      matrix.held?.missed(moved);
      const details = { layer, id, regions: moved, from: 'host', to: 'device' } as const;
      ledger.move(causeOf(matrix), moved * matrix.rowBytes, moved, details);
      if (matrix.certificate !== undefined) {
        matrix.counters.judgedRows += most;
        matrix.counters.uncertainRows += rows;
      } else {
        matrix.counters.activeRows += rows;
      }
      matrix.counters.keptHits += lying;
      matrix.counters.movedRows += moved;
      matrix.counters.rounds += 1;
    }
  }

  /** Forgets a pass that failed. */
  reset(): void {
    this.#used.length = 0;
  }

  #compact(pass: Pass, matrix: FedMatrix, rows: number, width: number, x: Span): Span {
    const { sets, neurons, hits } = this.#parts.spans;
    const { id } = matrix.description;
    const place = this.#places.get(matrix)!;
    const active = subspan(sets, place * (1 + neurons) * 4, 4 * (1 + width));
    pass.emit(`${id}.active`, { kind: 'compact', rows, width, x, active });
    if (matrix.held !== undefined) {
      const { index } = matrix.held;
      pass.emit(`${id}.places`, { kind: 'retain-rows', active, index, hits: subspan(hits!, 4 * place, 4) });
    }
    this.#used.push(matrix);
    return active;
  }
}

function causeOf({ certificate, placed }: FedMatrix): MoveCause {
  if (certificate !== undefined) return 'uncertain-rows';
  return placed.paths.decode === 'retained' ? 'retention-misses' : 'packet-rows';
}
