import type { Backend } from '../backend/backend.js';
import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { MoveCause } from '../memory/causes.js';
import type { Ledger } from '../memory/ledger.js';
import { activeInputsOp, type BoundMatrix, matrixOperand } from './bound-matrix.js';
import { guessOp, setOf } from './guessed-rows.js';
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
  /** Matrices whose rows this pass has guessed. */
  readonly #guessed = new Set<FedMatrix>();
  /** Those with guesses, in the order of passes. */
  readonly #layers: readonly (number | null)[];
  /** Matrices of the last whole pass of each kind, in the order of use. */
  readonly #usedIn = new Map<PassKind, readonly FedMatrix[]>();

  constructor(parts: DirectRowsParts) {
    this.#parts = parts;
    this.#places = new Map([...parts.mirrors.keys()].map((matrix, place) => [matrix, place]));
    this.#layers = [...new Set([...parts.mirrors.keys()].map(({ description }) => description.layer))];
    const numbers = Int32Array.from({ length: parts.mirrors.size }, (_, number) => number);
    parts.backend.write(parts.spans.numbers, new Uint8Array(numbers.buffer));
  }

  /**
   * Whether a pass of so many rows reads this matrix here. Retained rows of prompts are not: they may be computed with in
   * native numerics. Prompts guess nothing, and their sets come to the host; nor does the host's guess reach this place.
   */
  serves(matrix: BoundMatrix, rows: number, kind: PassKind): matrix is FedMatrix {
    const path = matrix.placed.paths[kind];
    if (!directPaths.has(path) || (path === 'retained' && kind === 'prefill')) return false;
    if (path === 'forecast' && (kind === 'prefill' || !('guess' in matrix))) return false;
    return rows <= (this.#parts.backend.hostTier?.directRows ?? 0) && this.#places.has(matrix);
  }

  /**
   * A pass comes to a layer. Early guesses are emitted when the layer in front is done, beside all that this one has and
   * between no ops that one kernel does; here begin only those with nothing in front.
   */
  enterLayer(pass: Pass, layer: number | null, rows: number, kind: PassKind): void {
    for (const matrix of this.#guessing(layer)) {
      if (matrix.guess?.timing === 'early' && this.serves(matrix, rows, kind)) this.#guess(pass, matrix);
    }
  }

  sparseLinear(pass: Pass, matrix: FedMatrix, request: LinearRequest): void {
    const { id, inputs } = matrix.description;
    const active = this.#compact(pass, matrix, request.rows, inputs, request.x);
    const mirror = this.#parts.mirrors.get(matrix)!;
    const op = activeInputsOp(matrix, request, mirror, active);
    const places = matrix.held ?? matrix.guess;
    if (places === undefined) {
      pass.emit(id, op);
      return;
    }
    const { rows, x, outputs, out, bias, residual } = op;
    const { index, span } = places;
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
    const next = this.#layers[this.#layers.indexOf(matrix.description.layer) + 1];
    if (matrix.guess?.timing !== 'early' || next === undefined) return;
    for (const following of this.#guessing(next)) this.#guess(pass, following);
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
    const places = matrix.held ?? matrix.guess;
    if (places === undefined) {
      pass.emit(id, { ...common, kind: 'active-outputs', listBegin: 0, listEnd: -1, slots: null });
    } else {
      const { index, span } = places;
      pass.emit(id, { ...common, kind: 'held-outputs', index, held: span });
    }
  }

  /**
   * Ends a pass: submits what is left, then charges the rows that its ops have read. `repeated`: the pass has the ops of
   * the one of its kind before, these here among them.
   */
  async end(pass: Pass, kind: PassKind, repeated: boolean): Promise<void> {
    const emitted = this.#used.splice(0);
    this.#guessed.clear();
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
      const { held, guess } = matrix;
      const lying = held === undefined && guess === undefined ? 0 : found[this.#places.size + place]!;
      if (lying > rows)
        throw new DefectError(`Cannot count the rows of "${id}": ${lying} of ${rows} have places`);
      if (guess !== undefined) this.#chargeGuess(matrix, lying, found[2 * this.#places.size + place]!);
      else chargeHits(this.#parts, matrix, lying);
      const moved = rows - lying;
      held?.missed(moved);
      const details = { layer, id, regions: moved, from: 'host', to: 'device' } as const;
      ledger.move(causeOf(matrix), moved * matrix.rowBytes, moved, details);
      if (matrix.certificate !== undefined) {
        matrix.counters.judgedRows += most;
        matrix.counters.uncertainRows += rows;
      } else {
        matrix.counters.activeRows += rows;
      }
      if (guess === undefined) matrix.counters.keptHits += lying;
      matrix.counters.movedRows += moved;
      matrix.counters.rounds += 1;
    }
  }

  /** Forgets a pass that failed. */
  reset(): void {
    this.#used.length = 0;
    this.#guessed.clear();
  }

  #guessing(layer: number | null): FedMatrix[] {
    return [...this.#parts.mirrors.keys()].filter(
      ({ description, guess }) => guess !== undefined && description.layer === layer,
    );
  }

  /** Once a pass. */
  #guess(pass: Pass, matrix: FedMatrix): void {
    if (matrix.guess === undefined || this.#guessed.has(matrix)) return;
    this.#guessed.add(matrix);
    const op = guessOp(matrix, matrix.guess, this.#parts.mirrors.get(matrix)!);
    pass.emit(`${matrix.description.id}.guess`, op);
  }

  /** Guessed rows are charged when it is known whether they were needed. */
  #chargeGuess(matrix: FedMatrix, used: number, guessed: number): void {
    const { id, layer } = matrix.description;
    if (used > guessed)
      throw new DefectError(`Cannot count the guesses of "${id}": ${used} of ${guessed} used`);
    const charge = (cause: MoveCause, rows: number): void => {
      const details = { layer, id, regions: rows, from: 'host', to: 'device' } as const;
      if (rows > 0) this.#parts.ledger.move(cause, rows * matrix.rowBytes, rows, details);
    };
    charge('forecast-used', used);
    charge('forecast-wasted', guessed - used);
    matrix.counters.guessedUsed += used;
    matrix.counters.guessedWasted += guessed - used;
  }

  #compact(pass: Pass, matrix: FedMatrix, rows: number, width: number, x: Span): Span {
    const { hits } = this.#parts.spans;
    const { id } = matrix.description;
    const place = this.#places.get(matrix)!;
    const active = setOf(this.#parts.spans, place, width);
    this.#guess(pass, matrix); // late, as the set that it goes by is about to change
    pass.emit(`${id}.active`, { kind: 'compact', rows, width, x, active });
    const places = matrix.held ?? matrix.guess;
    if (places !== undefined) {
      const { index } = places;
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
