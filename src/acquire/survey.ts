import { type QuantisedType, quantisedLayout } from '../base/quantised-type.js';
import { storedBytes } from '../base/stored-type.js';
import { type LowBitPlan, lowBitBytes } from '../checkpoint/low-bit-plan.js';
import { isSparse } from '../checkpoint/model-config.js';
import type {
  MatrixDescription,
  ModelDescription,
  TableDescription,
} from '../checkpoint/model-description.js';
import { quantisedMatrices } from '../checkpoint/quantised-copy.js';
import { smallestPieceBytes, storedRowBytes, storedRows } from './pieces.js';
import type { DenseReason, PlacedCertificate } from './placement.js';
import { type AcquisitionPolicy, rowPathOf } from './policy.js';

/** What the planner needs of a prepared tensor; `PreparedTensor` has it. */
export interface TensorFacts {
  readonly byteLength: number;
  readonly finite: boolean;
}

/** A matrix as the planner sees it under one policy. */
export interface SurveyedMatrix {
  readonly description: MatrixDescription;
  readonly bytes: number;
  readonly rows: number;
  readonly rowBytes: number;
  /** Smallest staging slot that can stream it. */
  readonly smallestPiece: number;
  /**
   * `dense`: resident where the budget allows, else streamed. `streamed-rows`: moved whole in every pass. `packets`:
   * moved by rows in at least one kind of pass.
   */
  readonly treatment: 'dense' | 'streamed-rows' | 'packets';
  /** Exact zeros of its neurons may be skipped. */
  readonly skippable: boolean;
  readonly denseReason: DenseReason | null;
  /** Set where a low-bit copy decides which of its rows are needed. */
  readonly certificate: PlacedCertificate | null;
  /** Set where it is held as other numbers. */
  readonly quantised: QuantisedType | null;
  /** Order of residence: lower first. */
  readonly rank: number;
}

export interface Survey {
  readonly matrices: readonly SurveyedMatrix[];
  /** Width of a layer's input. */
  readonly hiddenSize: number;
  readonly vectorBytes: number;
  readonly positionTable: TableDescription | null;
  readonly tokenTable: TableDescription;
  /** The head holds the token table's weights, so that one of them serves for both. */
  readonly tokenTableInHead: boolean;
}

/** Distance between vectors in their common buffer, so that each begins at a full SIMD width. */
export const vectorAlignment = 64;

/** Bytes of a vector with its padding. */
export function paddedVectorBytes(width: number): number {
  return Math.ceil((width * 4) / vectorAlignment) * vectorAlignment;
}

export function tableBytes(table: TableDescription): number {
  return table.rows * tableRowBytes(table);
}

export function tableRowBytes(table: TableDescription): number {
  return table.columns * storedBytes[table.type];
}

/** Sorts a model's weights by what a policy may do with them. */
export function surveyModel(
  description: ModelDescription,
  tensor: (id: string) => TensorFacts,
  policy: AcquisitionPolicy,
  lowBit: LowBitPlan | null = null,
): Survey {
  const sparse = isSparse(description.config.activation);
  const quantisable = new Set(policy.quantised === undefined ? [] : quantisedMatrices(description));
  const matrices = description.matrices.map((matrix) => {
    const surveyed = surveyMatrix(matrix, tensor(matrix.id), sparse, policy, lowBit);
    return quantisable.has(matrix) ? quantised(surveyed, policy.quantised!) : surveyed;
  });
  const head = description.matrices.find((matrix) => matrix.role === 'head');
  const tokenTable = description.tables.find((table) => table.id === 'token-embedding');
  if (tokenTable === undefined) throw new RangeError('Cannot plan a model without a token table');
  return {
    matrices,
    hiddenSize: description.config.hiddenSize,
    vectorBytes: description.vectors.reduce((sum, { width }) => sum + paddedVectorBytes(width), 0),
    positionTable: description.tables.find((table) => table.id === 'position-embedding') ?? null,
    tokenTable,
    tokenTableInHead:
      head !== undefined &&
      head.layout === 'input-major' &&
      head.sourceTensor === tokenTable.sourceTensor &&
      head.type === tokenTable.type &&
      head.inputs === tokenTable.columns &&
      head.outputs === tokenTable.rows,
  };
}

function surveyMatrix(
  matrix: MatrixDescription,
  facts: TensorFacts,
  sparse: boolean,
  policy: AcquisitionPolicy,
  lowBit: LowBitPlan | null,
): SurveyedMatrix {
  const choice = lowBit?.choices.get(matrix.id) ?? null;
  const ofNeurons = matrix.role === 'second' || matrix.role === 'up' || choice !== null;
  const denseReason = !ofNeurons
    ? null
    : !sparse || matrix.neuronAxis === null
      ? 'dense-activation'
      : facts.finite
        ? null
        : 'non-finite-weights';
  const skippable = ofNeurons && denseReason === null;
  const byRows = rowPathOf(policy) !== null;
  return {
    description: matrix,
    bytes: facts.byteLength,
    rows: storedRows(matrix),
    rowBytes: storedRowBytes(matrix),
    smallestPiece: smallestPieceBytes(matrix),
    treatment:
      byRows && skippable
        ? 'packets'
        : ofNeurons && !byRows && policy.residence === 'never'
          ? 'streamed-rows'
          : 'dense',
    skippable,
    denseReason,
    certificate:
      choice === null
        ? null
        : {
            format: choice.format,
            directions: choice.directions?.count ?? 0,
            bytes: lowBitBytes(matrix, choice),
          },
    quantised: null,
    rank: residenceRank(matrix),
  };
}

function quantised(matrix: SurveyedMatrix, type: QuantisedType): SurveyedMatrix {
  const { inputs, outputs } = matrix.description;
  const { byteLength } = quantisedLayout(type, inputs, outputs);
  return { ...matrix, bytes: byteLength, skippable: false, quantised: type };
}

/** All dense bytes cost the same to move; attention goes first so that regimes are as clear as the budget allows. */
function residenceRank(matrix: MatrixDescription): number {
  switch (matrix.role) {
    case 'query':
    case 'key':
    case 'value':
    case 'output':
    case 'project-in':
    case 'project-out':
      return 0;
    case 'head':
      return 1;
    case 'first':
    case 'gate':
      return 2;
    case 'up':
    case 'second':
      return 3;
  }
}
