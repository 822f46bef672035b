import { activeInputsOp, linearOp, type Multiplied, matrixOperand } from '../acquire/bound-matrix.js';
import { smallestPieceBytes, storedRowBytes, storedRows } from '../acquire/pieces.js';
import type {
  GatedLinearRequest,
  GatherRequest,
  LinearRequest,
  WeightSource,
} from '../acquire/weight-source.js';
import { blockInputs } from '../backend/ops.js';
import type { Pass } from '../backend/pass.js';
import { storedBytes } from '../base/stored-type.js';
import type { MatrixDescription, ModelDescription } from '../checkpoint/model-description.js';
import { type Span, subspan } from '../memory/buffers.js';

/** Where the operands of measured layers lie; all zeros but the pattern. */
export interface LayerRoom {
  readonly weights: Span;
  /** F32, as many as the widest vector of the model: biases and norms alike. */
  readonly vector: Span;
  /** F32 [neurons]: activations of which some are not zero; null: products over neurons read all rows. */
  readonly pattern: Span | null;
  /** U32 [1 + neurons] */
  readonly active: Span;
  readonly ids: Span; // Int32 [1]
}

/** A description of so many layers. */
export function firstLayers(description: ModelDescription, layers: number): ModelDescription {
  return {
    ...description,
    config: { ...description.config, layers },
    matrices: description.matrices.filter(({ layer }) => layer === null || layer < layers),
  };
}

/** Bytes of a layer's matrices, and the least room that each fits in as far as it can be cut. */
export function layerBytes({ matrices }: ModelDescription): { whole: number; least: number } {
  const layer = matrices.filter((matrix) => matrix.layer === 0);
  return {
    whole: layer.reduce((sum, matrix) => sum + storedRows(matrix) * storedRowBytes(matrix), 0),
    least: Math.max(0, ...layer.map(smallestPieceBytes)),
  };
}

/**
 * Serves a model's requests from one room in which matrices lie one behind another, and from its front again: what is read
 * means nothing, how long it takes does. Of a matrix that is larger than the room the first rows stand for all. What
 * lies outside of layers is left out.
 */
export class RoomSource implements WeightSource {
  readonly #description: ModelDescription;
  readonly #matrices: ReadonlyMap<string, MatrixDescription>;
  readonly #room: LayerRoom;
  #at = 0;
  /** Bytes of matrices that products read whole; of those whose rows belong to neurons; products over active ones. */
  denseBytes = 0;
  neuronBytes = 0;
  sets = 0;

  constructor(description: ModelDescription, room: LayerRoom) {
    this.#description = description;
    this.#matrices = new Map(description.matrices.map((matrix) => [matrix.id, matrix]));
    this.#room = room;
  }

  async begin(): Promise<void> {}

  async end(): Promise<void> {}

  lookUp(): void {}

  vector(id: string): Span {
    const width = this.#description.vectors.find((vector) => vector.id === id)!.width;
    return subspan(this.#room.vector, 0, width * 4);
  }

  async gather(pass: Pass, { id, out }: GatherRequest): Promise<void> {
    const { columns, type } = this.#description.tables.find((table) => table.id === id)!;
    const table = subspan(this.#room.weights, 0, columns * storedBytes[type]);
    pass.emit(id, {
      kind: 'gather',
      rows: 1,
      columns,
      table,
      tableRows: 1,
      type,
      rowStride: columns,
      columnStride: 1,
      ids: this.#room.ids,
      out,
    });
  }

  async linear(pass: Pass, request: LinearRequest): Promise<void> {
    const found = this.#find(request.id);
    if (found === null) return;
    const { matrix, span } = found;
    if (isOfNeurons(matrix.description)) this.neuronBytes += span.byteLength;
    else this.denseBytes += span.byteLength;
    pass.emit(request.id, linearOp(matrix, request, span));
  }

  async gatedLinear(pass: Pass, request: GatedLinearRequest): Promise<void> {
    const { pattern } = this.#room;
    if (pattern === null) return this.linear(pass, request);
    const { matrix, span } = this.#find(request.id)!;
    const { inputs, outputs } = matrix.description;
    this.neuronBytes += span.byteLength;
    pass.emit(request.id, {
      kind: 'active-outputs',
      rows: 1,
      x: request.x,
      inputs,
      active: this.#compact(pass, request.id, outputs, pattern),
      listBegin: 0,
      listEnd: -1,
      slots: null,
      matrix: matrixOperand(matrix.description, span),
      out: request.out,
      outStride: outputs,
      bias: matrix.bias,
    });
  }

  async sparseLinear(pass: Pass, request: LinearRequest): Promise<void> {
    const { pattern } = this.#room;
    if (pattern === null) return this.linear(pass, request);
    const { matrix, span } = this.#find(request.id)!;
    this.neuronBytes += span.byteLength;
    const { inputs } = matrix.description;
    const active = this.#compact(pass, request.id, inputs, pattern);
    pass.emit(request.id, activeInputsOp(matrix, { ...request, x: pattern }, span, active));
  }

  #compact(pass: Pass, id: string, width: number, pattern: Span): Span {
    const active = subspan(this.#room.active, 0, 4 * (1 + width));
    pass.emit(`${id}.active`, {
      kind: 'compact',
      rows: 1,
      width,
      x: subspan(pattern, 0, width * 4),
      active,
    });
    this.sets += 1;
    return active;
  }

  /** Null outside of layers. */
  #find(id: string): { readonly matrix: Multiplied; readonly span: Span } | null {
    const { weights } = this.#room;
    const whole = this.#matrices.get(id)!;
    if (whole.layer === null) return null;
    const description = cutTo(whole, weights.byteLength);
    const byteLength = storedRows(description) * storedRowBytes(description);
    if (this.#at + byteLength > weights.byteLength) this.#at = 0;
    const span = subspan(weights, this.#at, byteLength);
    this.#at += byteLength;
    const bias =
      whole.biasId === null ? null : subspan(this.vector(whole.biasId), 0, 4 * description.outputs);
    return { matrix: { description, bias }, span };
  }
}

/** Whether rows belong to neurons. */
export function isOfNeurons({ role }: Pick<MatrixDescription, 'role'>): boolean {
  return role === 'second' || role === 'up';
}

/** As many stored rows, in whole blocks, as fit. */
function cutTo(matrix: MatrixDescription, limitBytes: number): MatrixDescription {
  const rows = Math.floor(limitBytes / storedRowBytes(matrix));
  if (storedRows(matrix) <= rows) return matrix;
  const cut = Math.max(blockInputs, Math.floor(rows / blockInputs) * blockInputs);
  return matrix.layout === 'input-major' ? { ...matrix, inputs: cut } : { ...matrix, outputs: cut };
}
