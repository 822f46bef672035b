import type { Backend } from '../backend/backend.js';
import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { Ledger } from '../memory/ledger.js';
import { activeInputsOp, matrixOperand } from './bound-matrix.js';
import type { FedMatrix } from './row-feed.js';
import type { GatedLinearRequest, LinearRequest, PassKind } from './weight-source.js';

export interface DirectRowsParts {
  readonly backend: Backend;
  readonly ledger: Ledger;
  /** Matrices with the host memory that ops read them from. */
  readonly mirrors: ReadonlyMap<FedMatrix, Span>;
  /** U32 [matrices, 1 + neurons]: an active set for each, so that all counts are there when a pass ends. */
  readonly sets: Span;
  readonly neurons: number;
  readonly counts: Span; // U32 [matrices]
  readonly numbers: Span; // Int32 [matrices]: 0, 1, 2, ...
}

/**
 * Rows of active neurons that ops read by themselves from host memory: nothing is moved ahead, and the host learns how
 * many there were when the pass has ended.
 */
export class DirectRows {
  readonly #parts: DirectRowsParts;
  readonly #places: ReadonlyMap<FedMatrix, number>;
  readonly #used: FedMatrix[] = [];
  /** Matrices of the last whole pass of each kind, in the order of use. */
  readonly #usedIn = new Map<PassKind, readonly FedMatrix[]>();

  constructor(parts: DirectRowsParts) {
    this.#parts = parts;
    this.#places = new Map([...parts.mirrors.keys()].map((matrix, place) => [matrix, place]));
    const numbers = Int32Array.from({ length: parts.mirrors.size }, (_, number) => number);
    parts.backend.write(parts.numbers, new Uint8Array(numbers.buffer));
  }

  /** Whether a pass of so many rows reads this matrix here. */
  serves(matrix: FedMatrix, rows: number): boolean {
    return rows <= (this.#parts.backend.hostTier?.directRows ?? 0) && this.#parts.mirrors.has(matrix);
  }

  sparseLinear(pass: Pass, matrix: FedMatrix, request: LinearRequest): void {
    const { id, inputs } = matrix.description;
    const active = this.#compact(pass, matrix, request.rows, inputs, request.x);
    pass.emit(id, activeInputsOp(matrix, request, this.#parts.mirrors.get(matrix)!, active));
  }

  gatedLinear(pass: Pass, matrix: FedMatrix, request: GatedLinearRequest): void {
    const { id, inputs, outputs } = matrix.description;
    const active = this.#compact(pass, matrix, request.rows, outputs, request.gate);
    pass.emit(id, {
      kind: 'active-outputs',
      rows: request.rows,
      x: request.x,
      inputs,
      active,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      matrix: matrixOperand(matrix.description, this.#parts.mirrors.get(matrix)!),
      out: request.out,
      outStride: outputs,
      bias: matrix.bias,
    });
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
    const { backend, sets, neurons, counts, numbers, ledger } = this.#parts;
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
        out: counts,
      });
    }
    const done = pass.flush();
    if (pass.observed) await done; // whose ops are submitted one by one, each once the one in front was seen
    const [bytes] = await Promise.all([backend.read(counts), done]);
    const found = new Uint32Array(bytes.slice().buffer);
    ledger.move('active-set-readback', bytes.byteLength, used.length);
    for (const matrix of used) {
      const rows = found[this.#places.get(matrix)!]!;
      const { id, layer, inputs, outputs, neuronAxis } = matrix.description;
      const most = neuronAxis === 'inputs' ? inputs : outputs;
      if (rows > most) throw new DefectError(`Cannot count the rows of "${id}": ${rows} of ${most} neurons`);
      const uncertain = matrix.certificate !== undefined;
      ledger.move(uncertain ? 'uncertain-rows' : 'packet-rows', rows * matrix.rowBytes, rows, {
        layer,
        id,
        regions: rows,
        from: 'host',
        to: 'device',
      });
      if (uncertain) {
        matrix.counters.judgedRows += most;
        matrix.counters.uncertainRows += rows;
      } else {
        matrix.counters.activeRows += rows;
      }
      matrix.counters.movedRows += rows;
      matrix.counters.rounds += 1;
    }
  }

  /** Forgets a pass that failed. */
  reset(): void {
    this.#used.length = 0;
  }

  #compact(pass: Pass, matrix: FedMatrix, rows: number, width: number, x: Span): Span {
    const { sets, neurons } = this.#parts;
    const active = subspan(sets, this.#places.get(matrix)! * (1 + neurons) * 4, 4 * (1 + width));
    pass.emit(`${matrix.description.id}.active`, { kind: 'compact', rows, width, x, active });
    this.#used.push(matrix);
    return active;
  }
}
