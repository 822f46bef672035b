import type { TransferFile } from '../backend/backend.js';
import type { ActiveInputsOp, LinearOp, LowBitCopy, Matrix, QuantisedLinearOp } from '../backend/ops.js';
import { type QuantisedType, quantisedLayout } from '../base/quantised-type.js';
import { storedBytes } from '../base/stored-type.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { WeightRegion } from './executor.js';
import type { Piece } from './pieces.js';
import type { PlacedMatrix } from './placement.js';
import type { LinearRequest } from './weight-source.js';

/** A low-bit copy with the room for rounded inputs that all copies share. */
export interface BoundCertificate {
  readonly copy: LowBitCopy;
  readonly rounded: Span;
  /** Pre-activations at or below it are inactive. */
  readonly threshold: number;
}

/** A matrix of an opened source: what it is, how it is placed, where its bytes lie. */
export interface BoundMatrix {
  readonly description: MatrixDescription;
  readonly placed: PlacedMatrix;
  /** Set where it lies apart from the weights file. */
  readonly file?: TransferFile;
  readonly filePosition: number;
  /** The low-bit copy that says which of its rows a decode pass needs. */
  readonly certificate?: BoundCertificate;
  /** The whole matrix where it is resident, else null. */
  readonly resident: Span | null;
  readonly bias: Span | null;
  /** Mirrored in the checkpoint's own layout, outputs first: its pieces are runs of each output's row. */
  readonly strided: boolean;
}

/** What a product needs of a matrix beside its bytes. */
export type Multiplied = Pick<BoundMatrix, 'description' | 'bias'>;

/** What reading pieces of a matrix needs. */
export type StreamedMatrix = Pick<BoundMatrix, 'description' | 'file' | 'filePosition' | 'strided'>;

/** Describes stored rows to an op. */
export function matrixOperand({ type, layout, inputs, outputs }: MatrixDescription, span: Span): Matrix {
  return { span, type, layout, rowStride: layout === 'input-major' ? outputs : inputs };
}

/** The product with the rows of a whole matrix that an active set lists. */
export function activeInputsOp(
  { description, bias }: Multiplied,
  request: LinearRequest,
  span: Span,
  active: Span,
): ActiveInputsOp {
  const { inputs, outputs } = description;
  return {
    kind: 'active-inputs',
    rows: request.rows,
    x: request.x,
    xStride: inputs,
    active,
    listBegin: 0,
    listEnd: -1,
    slots: null,
    outputs,
    matrix: matrixOperand(description, span),
    out: request.out,
    continues: false,
    bias,
    residual: request.residual,
  };
}

/** The whole product. */
export function linearOp(matrix: Multiplied, request: LinearRequest, span: Span): LinearOp {
  const { inputs, outputs } = matrix.description;
  return {
    kind: 'linear',
    rows: request.rows,
    x: request.x,
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix: matrixOperand(matrix.description, span),
    out: request.out,
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: matrix.bias,
    residual: request.residual,
  };
}

/** The whole product with a quantised matrix, held as `quantisedLayout` has it. */
export function quantisedOp(
  matrix: BoundMatrix,
  request: LinearRequest,
  span: Span,
  type: QuantisedType,
): QuantisedLinearOp {
  const { inputs, outputs } = matrix.description;
  const { codeBytes, scalesOffset, scaleBytes } = quantisedLayout(type, inputs, outputs);
  return {
    kind: 'quantised-linear',
    rows: request.rows,
    x: request.x,
    inputs,
    outputs,
    type,
    codes: subspan(span, 0, codeBytes),
    scales: subspan(span, scalesOffset, scaleBytes),
    out: request.out,
    bias: matrix.bias,
    residual: request.residual,
  };
}

/** The part of the product that one piece serves; pieces in order give the bits of the whole. */
export function pieceOp(
  matrix: Multiplied & StreamedMatrix,
  request: LinearRequest,
  span: Span,
  piece: Piece,
): LinearOp {
  const whole = linearOp(matrix, request, span);
  const { rowBegin, rowEnd } = piece;
  const last = rowEnd === matrix.description.inputs;
  if (matrix.strided) {
    const { type } = matrix.description;
    return {
      ...whole,
      inputBegin: rowBegin,
      inputEnd: rowEnd,
      matrix: { span, type, layout: 'output-major', rowStride: rowEnd - rowBegin },
      continues: rowBegin > 0,
      bias: last ? whole.bias : null,
      residual: last ? whole.residual : null,
    };
  }
  if (matrix.description.layout === 'input-major') {
    return {
      ...whole,
      inputBegin: rowBegin,
      inputEnd: rowEnd,
      continues: rowBegin > 0,
      bias: last ? whole.bias : null,
      residual: last ? whole.residual : null,
    };
  }
  const outputs = rowEnd - rowBegin;
  return {
    ...whole,
    outputs,
    outOffset: rowBegin,
    bias: whole.bias === null ? null : subspan(whole.bias, rowBegin * 4, outputs * 4),
  };
}

/** Where a piece comes from. */
export function pieceRegion(
  { description, file, filePosition, strided }: StreamedMatrix,
  { rowBegin, rowEnd, byteOffset }: Piece,
  target: Span,
): WeightRegion {
  const other = file === undefined ? {} : { file };
  if (!strided) return { ...other, position: filePosition + byteOffset, target };
  const elementBytes = storedBytes[description.type];
  const runs = {
    offset: rowBegin * elementBytes,
    count: description.outputs,
    byteLength: (rowEnd - rowBegin) * elementBytes,
    pitch: description.inputs * elementBytes,
  };
  return { ...other, position: filePosition, target, runs };
}
