import type {
  GatedLinearRequest,
  GatherRequest,
  LinearRequest,
  WeightSource,
} from '../../src/acquire/weight-source.js';
import type { Backend } from '../../src/backend/backend.js';
import type { Matrix } from '../../src/backend/ops.js';
import type { Pass } from '../../src/backend/pass.js';
import { type StoredType, storedBytes } from '../../src/base/stored-type.js';
import type { MatrixDescription, ModelDescription } from '../../src/checkpoint/model-description.js';
import { type DeviceBuffer, type Span, spanOf } from '../../src/memory/buffers.js';

/** A tensor as a checkpoint stores it: matrices `[outputs, inputs]`, tables `[rows, columns]`. */
export interface StoredValues {
  readonly type: StoredType;
  readonly bytes: Uint8Array;
}

/** `dense`: every row is read. `active`: only rows of active neurons are. */
export type SecondProjections = 'dense' | 'active';

/**
 * The plainest weight source: everything resident, read from `StoredValues`. It shows what a model asks for, and in
 * `active` mode that zero activations need no row: it clears nothing that a skipped output leaves behind.
 */
export class ResidentSource implements WeightSource {
  readonly requested: string[] = [];
  readonly #backend: Backend;
  readonly #mode: SecondProjections;
  readonly #matrices = new Map<string, { description: MatrixDescription; matrix: Matrix }>();
  readonly #vectors = new Map<string, Span>();
  readonly #tables = new Map<string, { table: Span; type: StoredType; rows: number; columns: number }>();
  readonly #ids: { buffer: DeviceBuffer; used: number };
  readonly #active: Span;

  constructor(
    backend: Backend,
    description: ModelDescription,
    load: (id: string) => StoredValues,
    options: { maxRows: number; mode: SecondProjections },
  ) {
    this.#backend = backend;
    this.#mode = options.mode;
    for (const matrix of description.matrices) {
      const { type, bytes } = load(matrix.id);
      const stored =
        matrix.layout === 'output-major'
          ? bytes
          : transposed(bytes, matrix.outputs, matrix.inputs, storedBytes[type]);
      const rowStride = matrix.layout === 'output-major' ? matrix.inputs : matrix.outputs;
      const span = this.#upload(matrix.id, stored);
      this.#matrices.set(matrix.id, {
        description: matrix,
        matrix: { span, type, layout: matrix.layout, rowStride },
      });
    }
    for (const vector of description.vectors) {
      this.#vectors.set(vector.id, this.#upload(vector.id, load(vector.id).bytes));
    }
    for (const { id, rows, columns } of description.tables) {
      const { type, bytes } = load(id);
      this.#tables.set(id, { table: this.#upload(id, bytes), type, rows, columns });
    }
    const { ffnSize } = description.config;
    this.#ids = {
      buffer: backend.allocate({ label: 'ids', cause: 'indices', byteLength: 2 * options.maxRows * 4 }),
      used: 0,
    };
    this.#active = spanOf(
      backend.allocate({ label: 'active', cause: 'indices', byteLength: (1 + ffnSize) * 4 }),
    );
  }

  async begin(): Promise<void> {
    this.#ids.used = 0;
    this.requested.length = 0;
  }

  lookUp(): void {
    throw new Error('passes are not repeated here');
  }

  vector(id: string): Span {
    const span = this.#vectors.get(id);
    if (span === undefined) throw new Error(`Unknown vector "${id}"`);
    return span;
  }

  async gather(pass: Pass, { id, ids, out }: GatherRequest): Promise<void> {
    this.requested.push(id);
    const { table, type, rows, columns } = this.#tables.get(id)!;
    const byteLength = ids.length * 4;
    const idSpan = { buffer: this.#ids.buffer, byteOffset: this.#ids.used, byteLength };
    this.#ids.used += byteLength;
    this.#backend.write(idSpan, new Uint8Array(Int32Array.from(ids).buffer));
    const shape = { rows: ids.length, columns, tableRows: rows, rowStride: columns, columnStride: 1 };
    pass.emit(id, { kind: 'gather', ...shape, table, type, ids: idSpan, out });
  }

  async linear(pass: Pass, request: LinearRequest): Promise<void> {
    this.requested.push(request.id);
    const { description, matrix } = this.#matrix(request.id);
    pass.emit(request.id, {
      kind: 'linear',
      rows: request.rows,
      x: request.x,
      xStride: description.inputs,
      inputBegin: 0,
      inputEnd: description.inputs,
      outputs: description.outputs,
      matrix,
      out: request.out,
      outStride: description.outputs,
      outOffset: 0,
      continues: false,
      bias: this.#bias(description),
      residual: request.residual,
    });
  }

  async gatedLinear(pass: Pass, request: GatedLinearRequest): Promise<void> {
    if (this.#mode === 'dense') return this.linear(pass, request);
    this.requested.push(request.id);
    const { description, matrix } = this.#matrix(request.id);
    this.#compact(pass, request.id, request.rows, description.outputs, request.gate);
    pass.emit(request.id, {
      kind: 'active-outputs',
      rows: request.rows,
      x: request.x,
      inputs: description.inputs,
      active: this.#active,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      matrix,
      out: request.out,
      outStride: description.outputs,
      bias: this.#bias(description),
    });
  }

  async sparseLinear(pass: Pass, request: LinearRequest): Promise<void> {
    if (this.#mode === 'dense') return this.linear(pass, request);
    this.requested.push(request.id);
    const { description, matrix } = this.#matrix(request.id);
    this.#compact(pass, request.id, request.rows, description.inputs, request.x);
    pass.emit(request.id, {
      kind: 'active-inputs',
      rows: request.rows,
      x: request.x,
      xStride: description.inputs,
      active: this.#active,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      outputs: description.outputs,
      matrix,
      out: request.out,
      continues: false,
      bias: this.#bias(description),
      residual: request.residual,
    });
  }

  end(pass: Pass): Promise<void> {
    return pass.flush();
  }

  #compact(pass: Pass, id: string, rows: number, width: number, x: Span): void {
    pass.emit(`${id}.active`, { kind: 'compact', rows, width, x, active: this.#active });
  }

  #matrix(id: string): { description: MatrixDescription; matrix: Matrix } {
    const found = this.#matrices.get(id);
    if (found === undefined) throw new Error(`Unknown matrix "${id}"`);
    return found;
  }

  #bias(description: MatrixDescription): Span | null {
    return description.biasId === null ? null : this.vector(description.biasId);
  }

  #upload(label: string, bytes: Uint8Array): Span {
    const span = spanOf(
      this.#backend.allocate({ label, cause: 'dense-weights', byteLength: bytes.byteLength }),
    );
    this.#backend.write(span, bytes);
    return span;
  }
}

function transposed(bytes: Uint8Array, rows: number, columns: number, elementBytes: number): Uint8Array {
  const result = new Uint8Array(bytes.byteLength);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const from = (row * columns + column) * elementBytes;
      const to = (column * rows + row) * elementBytes;
      for (let byte = 0; byte < elementBytes; byte++) result[to + byte] = bytes[from + byte]!;
    }
  }
  return result;
}
