import type { Backend } from '../backend/backend.js';
import type { PlacedOp } from '../backend/ops.js';
import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { Ledger } from '../memory/ledger.js';
import {
  activeInputsOp,
  type BoundMatrix,
  linearOp,
  matrixOperand,
  pieceOp,
  quantisedOp,
} from './bound-matrix.js';
import { emitCertificate } from './certificate-ops.js';
import type { DenseStream } from './dense-stream.js';
import type { DirectRows } from './direct-rows.js';
import type { WeightMover } from './executor.js';
import type { Piece } from './pieces.js';
import { isRowPath } from './policy.js';
import type { FedMatrix, RowFeed } from './row-feed.js';
import type { AcquisitionStats, LayerCounters } from './stats.js';
import { type BoundTable, gatherRows, writeLookedUp } from './table-source.js';
import type {
  GatedLinearRequest,
  GatherRequest,
  LinearRequest,
  PassKind,
  WeightSource,
} from './weight-source.js';

/** A weight source with its life cycle. */
export interface OpenedWeightSource extends WeightSource {
  /**
   * Says what comes behind the pass that runs, or, between passes, behind the next one: reading ahead goes on into
   * it. `null`: nothing comes. Unsaid, decode passes are expected where the order of reads stays the same.
   */
  expect(next: PassKind | null): void;
  /**
   * Whether a pass of so many rows is one submission that comes again word for word, with other ids and positions in
   * their buffers: no weight moves in it, and nothing comes to the host before its end.
   */
  repeats(kind: PassKind, rows: number): boolean;
  /** In the place of a pass's requests, between `begin` and `end`: queues the ops of an equal pass before. */
  repeat(pass: Pass, ops: readonly PlacedOp[]): void;
  /** After a failed or cancelled pass: ends what still runs, so that another pass can begin. */
  reset(): Promise<void>;
  stats(): AcquisitionStats;
  /** What is held whole, by tensor id. */
  residentWeights(): ReadonlyMap<string, Span>;
  /** Gives all buffers back. Idempotent. */
  close(): Promise<void>;
}

/** Everything that opening has made. */
export interface SourceParts {
  readonly backend: Backend;
  readonly ledger: Ledger;
  readonly mover: WeightMover;
  readonly matrices: ReadonlyMap<string, BoundMatrix | FedMatrix>;
  readonly vectors: ReadonlyMap<string, Span>;
  readonly tables: ReadonlyMap<string, BoundTable>;
  readonly pieces: ReadonlyMap<string, readonly Piece[]>;
  readonly stream: DenseStream | null;
  readonly sameOrders: boolean;
  readonly feed: RowFeed | null;
  /** Set where rows can be read from the host as they are needed. */
  readonly direct: DirectRows | null;
  readonly active: Span | null; // U32 [1 + neurons]
  readonly layers: readonly LayerCounters[];
  readonly outside: LayerCounters;
  readonly release: () => void;
}

/** Serves a model's requests from where the placement has put its weights. */
export class PlacedSource implements OpenedWeightSource {
  readonly #parts: SourceParts;
  #kind: PassKind = 'prefill';
  #announced: PassKind | null | undefined = undefined;
  #running = false;
  #repeated = false;
  #closed = false;

  constructor(parts: SourceParts) {
    this.#parts = parts;
  }

  async begin(_pass: Pass, kind: PassKind): Promise<void> {
    if (this.#closed) throw new DefectError('Cannot begin a pass: the weight source is closed');
    if (this.#running) await this.reset();
    const { ledger, stream, sameOrders } = this.#parts;
    ledger.pass += 1;
    this.#kind = kind;
    this.#running = true;
    this.#repeated = false;
    const guess = kind === 'decode' || sameOrders ? 'decode' : null;
    const next = this.#announced === undefined ? guess : this.#announced;
    this.#announced = undefined;
    this.#parts.feed?.begin(kind);
    stream?.begin(ledger.pass, kind, next);
  }

  expect(next: PassKind | null): void {
    if (this.#running) this.#parts.stream?.expect(next);
    else this.#announced = next;
  }

  repeats(kind: PassKind, rows: number): boolean {
    const { tables, matrices, direct } = this.#parts;
    if ([...tables.values()].some(({ placed }) => placed.path === 'rows')) return false;
    return [...matrices.values()].every((matrix) => {
      if (matrix.resident !== null) return true;
      return direct?.serves(matrix, rows, kind) === true;
    });
  }

  repeat(pass: Pass, ops: readonly PlacedOp[]): void {
    pass.repeat(ops);
    this.#repeated = true;
  }

  vector(id: string): Span {
    const span = this.#parts.vectors.get(id);
    if (span === undefined) throw new DefectError(`Cannot find the vector "${id}"`);
    return span;
  }

  async gather(pass: Pass, request: GatherRequest): Promise<void> {
    await gatherRows(pass, this.#table(request.id), request, this.#parts.mover, this.#parts.ledger);
  }

  lookUp(id: GatherRequest['id'], ids: readonly number[]): void {
    writeLookedUp(this.#parts.backend, this.#table(id), ids);
  }

  async linear(pass: Pass, request: LinearRequest): Promise<void> {
    const matrix = this.#matrix(request.id);
    const { layer, inputs } = matrix.description;
    this.#parts.direct?.enterLayer(pass, layer, request.rows, this.#kind);
    await this.#parts.feed?.enterLayer(pass, layer, request, inputs, (fed) =>
      this.#readsDirectly(fed, request),
    );
    if (matrix.certificate === undefined || this.#kind === 'prefill') {
      await this.#dense(pass, matrix, request);
      return;
    }
    emitCertificate(pass, matrix, matrix.certificate, request);
    await this.gatedLinear(pass, { ...request, gate: request.out });
  }

  async gatedLinear(pass: Pass, request: GatedLinearRequest): Promise<void> {
    const matrix = this.#matrix(request.id);
    const path = matrix.placed.paths[this.#kind];
    if (this.#readsDirectly(matrix, request)) {
      this.#parts.direct!.gatedLinear(pass, matrix, request);
    } else if (isRowPath(path)) {
      await this.#parts.feed!.gatedLinear(pass, matrix as FedMatrix, request, request.gate);
    } else if (path === 'resident-sparse') {
      this.#skipOutputs(pass, matrix, request);
    } else {
      await this.#dense(pass, matrix, request);
    }
  }

  async sparseLinear(pass: Pass, request: LinearRequest): Promise<void> {
    const matrix = this.#matrix(request.id);
    const path = matrix.placed.paths[this.#kind];
    if (this.#readsDirectly(matrix, request)) {
      this.#parts.direct!.sparseLinear(pass, matrix, request);
    } else if (isRowPath(path)) {
      await this.#parts.feed!.sparseLinear(pass, matrix as FedMatrix, request);
    } else if (path === 'resident-sparse') {
      this.#skipInputs(pass, matrix, request);
    } else {
      await this.#dense(pass, matrix, request);
    }
  }

  async end(pass: Pass): Promise<void> {
    await (this.#parts.direct?.end(pass, this.#kind, this.#repeated) ?? pass.flush());
    this.#running = false;
  }

  async reset(): Promise<void> {
    const { backend, stream, tables, feed, direct } = this.#parts;
    direct?.reset();
    // A read waits for every submission before it, also for those behind the one that failed.
    const anySpan = [...tables.values()][0]?.ids;
    if (anySpan !== undefined) await backend.read(subspan(anySpan, 0, 4)).catch(() => {});
    await stream?.reset();
    await feed?.reset();
    this.#running = false;
  }

  stats(): AcquisitionStats {
    const { ledger, layers, stream, feed, mover, outside } = this.#parts;
    const streamed = stream?.stats;
    return {
      passes: ledger.pass,
      layers: layers.map((counters) => ({ ...counters })),
      streamWaitNs: streamed?.waitNs ?? 0n,
      rowWaitNs: feed?.waitNs ?? 0n,
      readNs: mover.readNs,
      densePieces: outside.densePieces,
      streamUsedBytes: streamed?.usedBytes ?? 0,
      streamDroppedBytes: streamed?.droppedBytes ?? 0,
      keptRows: feed?.heldRows ?? 0,
    };
  }

  residentWeights(): ReadonlyMap<string, Span> {
    const { vectors, matrices, tables } = this.#parts;
    const spans = new Map(vectors);
    for (const [id, { resident }] of matrices) if (resident !== null) spans.set(id, resident);
    for (const [id, { placed, span }] of tables) if (placed.path === 'resident') spans.set(id, span);
    return spans;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.reset();
    this.#parts.release();
  }

  #table(id: string): BoundTable {
    const table = this.#parts.tables.get(id);
    if (table === undefined) throw new DefectError(`Cannot find the table "${id}"`);
    return table;
  }

  #matrix(id: string): BoundMatrix | FedMatrix {
    const matrix = this.#parts.matrices.get(id);
    if (matrix === undefined) throw new DefectError(`Cannot find the matrix "${id}"`);
    return matrix;
  }

  #readsDirectly(matrix: BoundMatrix, { rows }: LinearRequest): matrix is FedMatrix {
    return this.#parts.direct?.serves(matrix, rows, this.#kind) === true;
  }

  async #dense(pass: Pass, matrix: BoundMatrix, request: LinearRequest): Promise<void> {
    const { id, layer } = matrix.description;
    if (matrix.resident !== null) {
      const path = matrix.placed.paths[this.#kind];
      const op =
        path === 'q8' || path === 'q4'
          ? quantisedOp(matrix, request, matrix.resident, path)
          : linearOp(matrix, request, matrix.resident);
      pass.emit(id, op);
      return;
    }
    const { stream, pieces, layers, outside } = this.#parts;
    const cut = pieces.get(id);
    if (stream === null || cut === undefined)
      throw new DefectError(`Cannot stream "${id}": it has no staging`);
    for (const piece of cut) {
      void pass.flush(); // what is queued runs beside the read
      const landed = await stream.take(matrix, piece);
      pass.emit(id, pieceOp(matrix, request, landed.span, piece));
      landed.release(pass.flush());
    }
    const counters = layer === null ? outside : layers[layer]!;
    counters.densePieces += cut.length;
  }

  #skipInputs(pass: Pass, matrix: BoundMatrix, request: LinearRequest): void {
    const { id, inputs } = matrix.description;
    const active = subspan(this.#parts.active!, 0, 4 * (1 + inputs));
    pass.emit(`${id}.active`, { kind: 'compact', rows: request.rows, width: inputs, x: request.x, active });
    pass.emit(id, activeInputsOp(matrix, request, matrix.resident!, active));
  }

  #skipOutputs(pass: Pass, matrix: BoundMatrix, request: GatedLinearRequest): void {
    const { id, inputs, outputs } = matrix.description;
    const active = subspan(this.#parts.active!, 0, 4 * (1 + outputs));
    pass.emit(`${id}.active`, {
      kind: 'compact',
      rows: request.rows,
      width: outputs,
      x: request.gate,
      active,
    });
    pass.emit(id, {
      kind: 'active-outputs',
      rows: request.rows,
      x: request.x,
      inputs,
      active,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      matrix: matrixOperand(matrix.description, matrix.resident!),
      out: request.out,
      outStride: outputs,
      bias: matrix.bias,
    });
  }
}
