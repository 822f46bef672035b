import type { Op } from '../backend/ops.js';
import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { Ledger } from '../memory/ledger.js';
import { type BoundMatrix, matrixOperand } from './bound-matrix.js';
import type { WeightMover, WeightRegion } from './executor.js';
import type { KeptRows } from './kept-rows.js';
import { planRounds, type Round } from './rounds.js';
import type { LayerCounters } from './stats.js';
import type { LinearRequest } from './weight-source.js';

/** A matrix whose rows are moved alone: where they go. */
export interface FedMatrix extends BoundMatrix {
  readonly arena: Span; // [packet rows + kept rows, row bytes]
  readonly packetRows: number;
  readonly rowBytes: number;
  readonly kept: KeptRows | null;
}

/** What a feed works with; all of it was allocated at opening. */
export interface RowFeedParts {
  readonly mover: WeightMover;
  readonly ledger: Ledger;
  readonly active: Span; // U32 [1 + neurons]
  readonly slots: Span; // U32 [neurons]
  readonly counters: (layer: number | null) => LayerCounters;
}

/**
 * Moves the rows of active neurons, and no others: finds the active set, reads it back, reads the missing rows, and
 * computes with what lies in the arena.
 */
export class RowFeed {
  readonly #parts: RowFeedParts;
  #waitNs = 0n;

  constructor(parts: RowFeedParts) {
    this.#parts = parts;
  }

  /** Nanoseconds that passes waited for rows. */
  get waitNs(): bigint {
    return this.#waitNs;
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
    const { description, kept } = matrix;
    const active = await this.#activeSet(pass, matrix, activation, rows);
    const plan = planRounds(active, {
      packetRows: matrix.packetRows,
      keptSlot: (neuron) => (kept === null ? -1 : kept.slotOf(neuron)),
      offer: (newcomer) => (kept === null ? -1 : kept.offer(newcomer)),
    });
    if (active.length > 0) {
      // The read-back has waited for every op before, so no op reads the slots of an earlier matrix now.
      const bytes = new Uint8Array(plan.slots.buffer);
      pass.backend.write(subspan(this.#parts.slots, 0, bytes.byteLength), bytes);
    }
    const halfDone: [Promise<void>, Promise<void>] = [Promise.resolve(), Promise.resolve()];
    for (const [index, round] of plan.rounds.entries()) {
      await halfDone[round.half];
      await this.#moveRound(matrix, round);
      kept?.enter(round.newcomers);
      const last = index === plan.rounds.length - 1;
      emit(round, index === 0, last);
      if (!last) halfDone[round.half] = pass.flush();
    }
    const counters = this.#parts.counters(description.layer);
    counters.activeRows += active.length;
    counters.movedRows += plan.rounds.reduce((sum, round) => sum + round.movedRows, 0);
    counters.keptHits += plan.keptHits;
    counters.rounds += plan.rounds.length;
  }

  /** Compacts, and brings the set to the host: first its size, then as many words. */
  async #activeSet(pass: Pass, matrix: FedMatrix, x: Span, rows: number): Promise<Uint32Array> {
    const { id, layer, inputs, outputs } = matrix.description;
    const width = matrix.description.neuronAxis === 'inputs' ? inputs : outputs;
    const active = subspan(this.#parts.active, 0, 4 * (1 + width));
    pass.emit(`${id}.active`, { kind: 'compact', rows, width, x, active });
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

  async #moveRound(matrix: FedMatrix, round: Round): Promise<void> {
    if (round.runs.length === 0) return;
    const { rowBytes, arena, filePosition, description } = matrix;
    const regions = round.runs.map(
      (run): WeightRegion => ({
        position: filePosition + run.neuron * rowBytes,
        target: subspan(arena, run.slot * rowBytes, run.rows * rowBytes),
      }),
    );
    const began = process.hrtime.bigint();
    const { layer, id } = description;
    const pass = this.#parts.ledger.pass;
    await this.#parts.mover.move({ cause: 'packet-rows', layer, id, rows: round.movedRows, pass }, regions);
    this.#waitNs += process.hrtime.bigint() - began;
  }
}

/** Copies, because a backend's bytes need not be aligned to words. */
function words(bytes: Uint8Array): Uint32Array {
  return new Uint32Array(bytes.slice().buffer);
}
