import type { Op } from '../backend/ops.js';
import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { Ledger } from '../memory/ledger.js';
import { type BoundMatrix, matrixOperand } from './bound-matrix.js';
import type { GuessedRows } from './guessed-rows.js';
import type { HeldRows } from './held-rows.js';
import type { Round } from './rounds.js';
import type { RowPlace, RowReader } from './row-reader.js';
import type { LayerInput, RowWay } from './row-way.js';
import type { LinearRequest, PassKind } from './weight-source.js';

/** A matrix whose rows are moved alone: where they go, and how they come. */
export interface FedMatrix extends BoundMatrix, RowPlace {
  readonly way: RowWay;
  /** Set where rows stay on a device that looks them up by itself. */
  readonly held?: HeldRows;
  /** Set where a device guesses rows by itself. */
  readonly guess?: GuessedRows;
}

/** What a feed works with; all of it was allocated at opening. */
export interface RowFeedParts {
  readonly reader: RowReader;
  readonly ledger: Ledger;
  readonly matrices: readonly FedMatrix[];
  readonly active: Span; // U32 [1 + neurons]
  readonly slots: Span | null; // U32 [neurons]; null where rows lie at the numbers of their neurons
}

/**
 * Serves products from rows of active neurons: finds the active set, reads it back, has the rows come by the way of the
 * matrix, and computes with what lies in the arena.
 */
export class RowFeed {
  readonly #parts: RowFeedParts;
  #kind: PassKind = 'prefill';
  #layer: number | null = null;

  constructor(parts: RowFeedParts) {
    this.#parts = parts;
  }

  /** Nanoseconds that passes waited for rows. */
  get waitNs(): bigint {
    return this.#parts.reader.waitNs;
  }

  /** Rows held from one pass to the next, of all matrices. */
  get heldRows(): number {
    return this.#parts.matrices.reduce((sum, { way }) => sum + way.heldRows, 0);
  }

  begin(kind: PassKind): void {
    this.#kind = kind;
    this.#layer = null;
  }

  /** Tells a layer's matrices, once a pass, that it comes to them; those that are `elsewhere` are served by others. */
  async enterLayer(
    pass: Pass,
    layer: number | null,
    request: LinearRequest,
    width: number,
    elsewhere: (matrix: FedMatrix) => boolean = () => false,
  ): Promise<void> {
    if (layer === this.#layer) return;
    this.#layer = layer;
    const ways = this.#parts.matrices.filter(
      (matrix) => matrix.description.layer === layer && !elsewhere(matrix),
    );
    const reads = ways.some(({ way }) => way.readsInput?.(this.#kind) === true);
    const input = reads ? await this.#readInput(pass, request, width) : null;
    for (const { way } of ways) way.enterLayer(this.#kind, input);
  }

  async #readInput(pass: Pass, { id, x, rows }: LinearRequest, width: number): Promise<LayerInput> {
    await pass.flush();
    const bytes = await pass.backend.read(subspan(x, 0, rows * width * 4));
    this.#parts.ledger.move('active-set-readback', bytes.byteLength, rows, {
      layer: this.#layer,
      id,
      regions: 1,
    });
    const values = new Float32Array(bytes.slice().buffer);
    return {
      rows: Array.from({ length: rows }, (_, row) => values.subarray(row * width, (row + 1) * width)),
    };
  }

  /** After a failed pass, once no op runs. */
  async reset(): Promise<void> {
    for (const { way } of this.#parts.matrices) await way.reset();
  }

  /** The second projection of a pass. */
  async sparseLinear(pass: Pass, matrix: FedMatrix, request: LinearRequest): Promise<void> {
    const { id, inputs, outputs } = matrix.description;
    await this.#feed(pass, matrix, request.x, request.rows, (round, first, last) => {
      pass.emit(id, {
        kind: 'active-inputs',
        rows: request.rows,
        x: request.x,
        xStride: inputs,
        active: this.#parts.active,
        listBegin: round.listBegin,
        listEnd: round.listEnd,
        slots: this.#parts.slots,
        outputs,
        matrix: matrixOperand(matrix.description, matrix.arena),
        out: request.out,
        continues: !first,
        bias: last ? matrix.bias : null,
        residual: last ? request.residual : null,
      } satisfies Op);
    });
  }

  /** The outputs of `up` whose gate is not zero. */
  async gatedLinear(pass: Pass, matrix: FedMatrix, request: LinearRequest, gate: Span): Promise<void> {
    const { id, inputs, outputs } = matrix.description;
    await this.#feed(pass, matrix, gate, request.rows, (round) => {
      if (round.listBegin === round.listEnd) return;
      pass.emit(id, {
        kind: 'active-outputs',
        rows: request.rows,
        x: request.x,
        inputs,
        active: this.#parts.active,
        listBegin: round.listBegin,
        listEnd: round.listEnd,
        slots: this.#parts.slots,
        matrix: matrixOperand(matrix.description, matrix.arena),
        out: request.out,
        outStride: outputs,
        bias: matrix.bias,
      } satisfies Op);
    });
  }

  async #feed(
    pass: Pass,
    matrix: FedMatrix,
    activation: Span,
    rows: number,
    emit: (round: Round, first: boolean, last: boolean) => void,
  ): Promise<void> {
    const active = await this.#activeSet(pass, matrix, activation, rows);
    const plan = await matrix.way.plan(active, this.#kind);
    if (active.length > 0 && plan.slots !== null) {
      // The read-back has waited for every op before, so no op reads the slots of an earlier matrix now.
      const bytes = new Uint8Array(plan.slots.buffer);
      pass.backend.write(subspan(this.#parts.slots!, 0, bytes.byteLength), bytes);
    }
    const halfDone: [Promise<void>, Promise<void>] = [Promise.resolve(), Promise.resolve()];
    for (const [index, round] of plan.rounds.entries()) {
      await halfDone[round.half];
      await matrix.way.move(round);
      const last = index === plan.rounds.length - 1;
      emit(round, index === 0, last);
      if (!last) halfDone[round.half] = pass.flush();
    }
    if (matrix.certificate === undefined) {
      matrix.counters.activeRows += active.length;
    } else {
      matrix.counters.judgedRows += matrix.description.outputs;
      matrix.counters.uncertainRows += active.length;
    }
    matrix.counters.keptHits += plan.keptHits;
    matrix.counters.rounds += plan.rounds.length;
  }

  /** Compacts, and brings the set to the host: first its size, then as many words. */
  async #activeSet(pass: Pass, matrix: FedMatrix, x: Span, rows: number): Promise<Uint32Array> {
    const { id, layer, inputs, outputs } = matrix.description;
    const width = matrix.description.neuronAxis === 'inputs' ? inputs : outputs;
    const active = subspan(this.#parts.active, 0, 4 * (1 + width));
    pass.emit(`${id}.active`, { kind: 'compact', rows, width, x, active });
    matrix.way.lookUp?.(pass, active);
    await pass.flush();
    const count = words(await pass.backend.read(subspan(active, 0, 4)))[0]!;
    if (count > width)
      throw new DefectError(`Cannot use the active set of "${id}": ${count} of ${width} neurons`);
    const list =
      count === 0 ? new Uint32Array() : words(await pass.backend.read(subspan(active, 4, 4 * count)));
    this.#parts.ledger.move('active-set-readback', 4 * (1 + count), count, {
      layer,
      id,
      regions: count === 0 ? 1 : 2,
    });
    return list;
  }
}

/** Copies, because a backend's bytes need not be aligned to words. */
function words(bytes: Uint8Array): Uint32Array {
  return new Uint32Array(bytes.slice().buffer);
}
