import type { Backend, TransferFile } from '../backend/backend.js';
import { DefectError } from '../base/errors.js';
import type { QuantisedType } from '../base/quantised-type.js';
import type { LowBitModel } from '../checkpoint/low-bit-model.js';
import type { MatrixDescription, TableDescription } from '../checkpoint/model-description.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import type { QuantisedCopy } from '../checkpoint/quantised-copy.js';
import { BudgetedAllocator } from '../memory/budget.js';
import { type DeviceBuffer, type Span, spanOf, subspan } from '../memory/buffers.js';
import type { HoldCause } from '../memory/causes.js';
import type { Ledger } from '../memory/ledger.js';
import type { ActivationProfile } from './activation-profile.js';
import type { BoundMatrix } from './bound-matrix.js';
import { DenseStream, type StreamedPiece, type StreamOrders } from './dense-stream.js';
import { DirectRows } from './direct-rows.js';
import { WeightMover } from './executor.js';
import { type Load, loadWeights, regionsOfLoad } from './load-weights.js';
import { isHeld, mirrorWeights, requireHostRoom } from './mirror-weights.js';
import { openArenas } from './open-arenas.js';
import { type DirectSpans, openDirect } from './open-direct.js';
import { cutIntoPieces, type Piece, storedRows } from './pieces.js';
import { type CertifiedPlace, placeCertificates, requireLowBit } from './place-certificates.js';
import { type OpenedWeightSource, PlacedSource } from './placed-source.js';
import type { PlacedMatrix, PlacedTable, Placement } from './placement.js';
import { reservedLabels, retentionIndexLabel } from './row-arenas.js';
import { type FedMatrix, RowFeed } from './row-feed.js';
import { RowReader } from './row-reader.js';
import { newLayerCounters } from './stats.js';
import { paddedVectorBytes } from './survey.js';
import type { BoundTable } from './table-source.js';
import { type OnDevice, WayBuilder } from './way-builder.js';
import type { PassKind } from './weight-source.js';

export interface OpenWeightSourceOptions {
  readonly placement: Placement;
  readonly backend: Backend;
  readonly prepared: PreparedModel;
  /** The session's counter; a trace sees every move through it. */
  readonly ledger: Ledger;
  /** The record of activity that the placement's hot set is chosen by. */
  readonly profile?: ActivationProfile;
  /** The certified part of the prepared form, where the placement certifies. */
  readonly lowBit?: LowBitModel;
  /** The quantised matrices, where the placement holds any. */
  readonly quantised?: QuantisedCopy;
  /** Most bytes of page-locked host memory, where the backend has a host tier; no limit where it is absent. */
  readonly hostBudgetBytes?: number;
  /** Called as resident weights land. */
  readonly onProgress?: (loadedBytes: number, totalBytes: number) => void;
  readonly signal?: AbortSignal;
}

/** Of device buffers: alignment of the widest loads, and of allocations. */
const deviceUnitBytes = 256;

/**
 * Allocates what a placement lists, loads what is resident and returns the source. Nothing is allocated in a pass.
 *
 * @throws BudgetError `budget-exceeded` when the session holds more than its placement knew of; SetupError
 * `out-of-memory`; ExecutionError `short-read`; InterruptedError `interrupted`. Nothing is held after a failure.
 */
export async function openWeightSource(options: OpenWeightSourceOptions): Promise<OpenedWeightSource> {
  const opening = new Opening(options);
  try {
    return await opening.open();
  } catch (error) {
    opening.release();
    throw error;
  }
}

class Opening {
  readonly #options: OpenWeightSourceOptions;
  readonly #lowBit: LowBitModel | null;
  readonly #allocator: BudgetedAllocator;
  readonly #mover: WeightMover;
  readonly #buffers: DeviceBuffer[] = [];
  readonly #reserved: string[] = [];
  /** What is to be loaded once all is allocated. */
  readonly #loads: Load[] = [];
  readonly #mirrors: DeviceBuffer[] = [];

  constructor(options: OpenWeightSourceOptions) {
    const { backend, placement, prepared, ledger } = options;
    this.#options = options;
    this.#lowBit = requireLowBit(placement.matrices, options.lowBit);
    this.#allocator = new BudgetedAllocator(backend, placement.budgetBytes ?? Infinity, ledger);
    this.#mover = new WeightMover(backend, prepared.weightsFile, ledger);
  }

  async open(): Promise<OpenedWeightSource> {
    const { placement, backend, prepared, ledger } = this.#options;
    const description = this.#lowBit?.description ?? prepared.description;
    const certified = this.#placeCertificates();
    const placed = new Map(placement.matrices.map((matrix) => [matrix.id, matrix]));
    const vectors = this.#placeVectors();
    const resident = this.#placeResidents(description.matrices, placed, certified);
    const tables = this.#placeTables(description.tables, resident);
    const layers = Array.from({ length: description.config.layers }, newLayerCounters);
    const outside = newLayerCounters();
    const { activeNeurons } = placement;
    const active =
      activeNeurons === 0 ? null : this.#allocate('active set', 'indices', 4 * (1 + activeNeurons));
    const reader = new RowReader(this.#mover, ledger);
    const direct = backend.hostTier === undefined ? null : openDirect(placement, this.#allocateOne);
    const ways = this.#wayBuilder(reader, direct);
    this.#reserve(direct !== null);
    const matrices = new Map<string, BoundMatrix | FedMatrix>();
    const fed: FedMatrix[] = [];
    for (const matrix of description.matrices) {
      const place = placed.get(matrix.id)!;
      const bound: BoundMatrix = {
        description: matrix,
        placed: place,
        ...(certified.get(matrix.id) ?? { filePosition: prepared.tensor(matrix.id).byteOffset }),
        resident: resident.get(matrix.id) ?? null,
        bias: matrix.biasId === null ? null : vectors.get(matrix.biasId)!,
        strided:
          placement.streamLayout === 'strided' &&
          matrix.role === 'second' &&
          place.paths.decode === 'streamed',
      };
      matrices.set(matrix.id, bound);
      if (place.arena === null) continue;
      fed.push(ways.bind(bound, matrix.layer === null ? outside : layers[matrix.layer]!));
      matrices.set(matrix.id, fed.at(-1)!);
    }
    this.#loads.push(...ways.loads);
    const numbered = fed.some(({ placed }) => placed.paths.decode !== 'staged');
    const feed =
      fed.length === 0
        ? null
        : new RowFeed({
            reader,
            ledger,
            matrices: fed,
            active: active!,
            slots: numbered ? this.#allocate('row slots', 'indices', 4 * activeNeurons) : null,
          });
    const pieces = new Map<string, readonly Piece[]>();
    const orders = this.#orders([...matrices.values()], pieces);
    const { staging } = placement;
    const stream =
      staging === null
        ? null
        : new DenseStream(
            this.#mover,
            orders,
            this.#allocate('staging', 'staging', staging.slots * staging.slotBytes),
            staging.slotBytes,
          );
    const mirrored = backend.hostTier === undefined ? [] : moving([...matrices.values()]);
    requireHostRoom(mirrored, backend, this.#options.hostBudgetBytes ?? Infinity);
    await loadWeights(this.#mover, this.#loads, this.#options);
    const mirrors = await mirrorWeights(mirrored, this.#options, this.#mirrors);
    return new PlacedSource({
      backend,
      ledger,
      mover: this.#mover,
      matrices,
      vectors,
      tables,
      pieces,
      stream,
      sameOrders: orders.prefill === orders.decode,
      feed,
      direct:
        direct === null
          ? null
          : new DirectRows({ backend, ledger, spans: direct, mirrors: rowsOf(fed, mirrors) }),
      active,
      layers,
      outside,
      release: () => this.release(),
    });
  }

  release(): void {
    for (const buffer of this.#buffers.splice(0)) this.#allocator.release(buffer);
    for (const label of this.#reserved.splice(0)) this.#allocator.unreserve(label);
    for (const buffer of this.#mirrors.splice(0)) this.#options.backend.release(buffer);
  }

  /** Low-bit copies, and where the rows of their matrices lie. */
  #placeCertificates(): Map<string, CertifiedPlace> {
    const { placement } = this.#options;
    if (this.#lowBit === null) return new Map();
    return placeCertificates(this.#lowBit, placement.matrices, placement.maxRows, {
      allocate: (label, cause, byteLength) => this.#allocate(label, cause, byteLength),
      loadLater: (...load) => this.#loadLater(...load),
    });
  }

  readonly #allocateOne = (label: string, cause: HoldCause, byteLength: number): Span =>
    this.#allocate(label, cause, byteLength);

  #allocate(label: string, cause: HoldCause, byteLength: number): Span {
    return this.#allocateParts(label, [[label, cause, byteLength]]);
  }

  #allocateParts(label: string, parts: readonly (readonly [string, HoldCause, number])[]): Span {
    const components = parts.map(([name, cause, bytes]) => ({ label: name, cause, bytes }));
    const buffer = this.#allocator.allocateParts(label, components);
    this.#buffers.push(buffer);
    return spanOf(buffer);
  }

  /** All vectors in one buffer. */
  #placeVectors(): Map<string, Span> {
    const { vectors } = this.#options.prepared.description;
    const byteLength = vectors.reduce((sum, { width }) => sum + paddedVectorBytes(width), 0);
    const spans = new Map<string, Span>();
    if (byteLength === 0) return spans;
    const all = this.#allocate('vectors', 'dense-weights', byteLength);
    let byteOffset = 0;
    for (const { id, width } of vectors) {
      const span = subspan(all, byteOffset, width * 4);
      byteOffset += paddedVectorBytes(width);
      spans.set(id, span);
      this.#loadLater(id, null, 1, span);
    }
    return spans;
  }

  /**
   * On a device matrices of whole allocation units share one buffer: each buffer of its own would lose up to a page of 2 MiB
   * that no plan knows of.
   */
  #allocateResidents(wanted: readonly { readonly id: string; readonly bytes: number }[]): Map<string, Span> {
    const shares = ({ bytes }: { bytes: number }): boolean =>
      this.#options.backend.hostTier !== undefined && bytes % deviceUnitBytes === 0;
    const spans = new Map<string, Span>();
    const shared = wanted.filter(shares);
    if (shared.length > 0) {
      const all = this.#allocateParts(
        'resident matrices',
        shared.map(({ id, bytes }) => [id, 'dense-weights', bytes]),
      );
      let byteOffset = 0;
      for (const { id, bytes } of shared) {
        spans.set(id, subspan(all, byteOffset, bytes));
        byteOffset += bytes;
      }
    }
    for (const one of wanted) {
      if (!shares(one)) spans.set(one.id, this.#allocate(one.id, 'dense-weights', one.bytes));
    }
    return spans;
  }

  #placeResidents(
    matrices: readonly MatrixDescription[],
    placed: ReadonlyMap<string, PlacedMatrix>,
    certified: ReadonlyMap<string, CertifiedPlace>,
  ): Map<string, Span> {
    const isResident = ({ id }: MatrixDescription): boolean => isHeld(placed.get(id)!);
    const spans = this.#allocateResidents(
      matrices.filter(isResident).map(({ id }) => ({ id, bytes: placed.get(id)!.bytes })),
    );
    for (const matrix of matrices.filter(isResident)) {
      const { id, layer } = matrix;
      const { paths } = placed.get(id)!;
      const copy = paths.decode === 'q8' || paths.decode === 'q4' ? this.#quantised(paths.decode) : null;
      const span = spans.get(id)!;
      const place = certified.get(id);
      const other =
        copy !== null
          ? { file: copy.file, position: copy.position(id) }
          : place && { file: place.file, position: place.filePosition };
      this.#loadLater(id, layer, storedRows(matrix), span, other);
    }
    return spans;
  }

  #placeTables(
    tables: readonly TableDescription[],
    resident: ReadonlyMap<string, Span>,
  ): Map<string, BoundTable> {
    const { placement, prepared } = this.#options;
    const placedById = new Map(placement.tables.map((table) => [table.id, table]));
    return new Map(
      tables.map((description): [string, BoundTable] => {
        const placed = placedById.get(description.id)!;
        const ids = this.#allocate('table ids', 'indices', placement.maxRows * 4);
        const span = this.#tableSpan(description, placed, resident);
        const filePosition = prepared.tensor(description.id).byteOffset;
        return [description.id, { description, placed, filePosition, span, ids }];
      }),
    );
  }

  #tableSpan(table: TableDescription, placed: PlacedTable, resident: ReadonlyMap<string, Span>): Span {
    if (placed.path === 'head') return resident.get('head')!;
    if (placed.path === 'rows') {
      const rows = Math.min(this.#options.placement.maxRows, table.rows);
      return this.#allocate('token rows', 'staging', rows * placed.rowBytes);
    }
    const span = this.#allocate(table.id, 'dense-weights', placed.bytes);
    this.#loadLater(table.id, null, table.rows, span);
    return span;
  }

  /** Arenas, and what row paths need beside them. */
  #wayBuilder(reader: RowReader, direct: DirectSpans | null): WayBuilder {
    const { placement, backend, profile } = this.#options;
    const { retention, matrices, forecast } = placement;
    return new WayBuilder({
      backend,
      reader,
      arenas: openArenas(placement, (label, parts) => this.#allocateParts(label, parts)),
      retention,
      onDevice: this.#onDevice(direct?.hits ?? null),
      direct,
      profile: profile ?? null,
      forecast,
      guesser: placement.guesser ?? null,
      inputWidth: this.#options.prepared.description.config.hiddenSize,
      fed: matrices.filter(({ arena }) => arena !== null),
    });
  }

  /** An index of retained rows lies on the device where ops there look rows up. */
  #onDevice(hits: Span | null): OnDevice | null {
    const index = this.#options.placement.components.find(({ label }) => label === retentionIndexLabel);
    if (hits === null || index === undefined) return null;
    return { index: this.#allocate(index.label, index.cause, index.bytes), hits };
  }

  /** What JavaScript holds of an index, as the placement has it. */
  #reserve(onDevice: boolean): void {
    for (const component of this.#options.placement.components) {
      if (onDevice && component.label === retentionIndexLabel) continue;
      if (!reservedLabels.some((label) => label === component.label)) continue;
      this.#allocator.reserve(component);
      this.#reserved.push(component.label);
    }
  }

  /** What is streamed, in the order of use; cut once, so that a piece is one object everywhere. */
  #orders(matrices: readonly BoundMatrix[], pieces: Map<string, readonly Piece[]>): StreamOrders {
    const { staging } = this.#options.placement;
    const order = (kind: PassKind): StreamedPiece[] =>
      matrices
        .filter(({ placed }) => placed.paths[kind] === 'streamed')
        .flatMap((matrix) => {
          const { id } = matrix.description;
          const cut = pieces.get(id) ?? cutIntoPieces(matrix.description, staging!.slotBytes);
          pieces.set(id, cut);
          return cut.map((piece) => ({ matrix, piece }));
        });
    const prefill = order('prefill');
    const decode = order('decode');
    const same = prefill.length === decode.length; // one is a subset of the other
    return { prefill, decode: same ? prefill : decode };
  }

  #quantised(type: QuantisedType): QuantisedCopy {
    const copy = this.#options.quantised;
    if (copy?.type === type) return copy;
    throw new DefectError(`Cannot load ${type} weights: their copy is not open`);
  }

  #loadLater(
    id: string,
    layer: number | null,
    rows: number,
    target: Span,
    from?: { readonly file: TransferFile; readonly position: number },
  ): void {
    const position = from?.position ?? this.#options.prepared.tensor(id).byteOffset;
    this.#loads.push({ id, layer, rows, regions: regionsOfLoad(target, position, from?.file) });
  }
}

/** Matrices that move in some kind of pass. */
function moving(matrices: readonly BoundMatrix[]): BoundMatrix[] {
  return matrices.filter(({ resident }) => resident === null);
}

function rowsOf(fed: readonly FedMatrix[], mirrors: ReadonlyMap<BoundMatrix, Span>): Map<FedMatrix, Span> {
  return new Map(fed.map((matrix) => [matrix, mirrors.get(matrix)!]));
}
