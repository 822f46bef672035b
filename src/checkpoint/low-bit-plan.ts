import { type LowBitName, lowBitFormat } from './low-bit.js';
import { largestLowBitInputs, lowBitLayout } from './low-bit-layout.js';
import { isSparse } from './model-config.js';
import type { MatrixDescription, ModelDescription } from './model-description.js';

/** Directions of a copy; without elements where they are written already. */
export interface PlannedDirections {
  readonly count: number;
  readonly exponent: number;
  readonly elements: Int16Array | null;
}

/** What the low-bit copy of one matrix is to be. */
export interface LowBitChoice {
  readonly format: LowBitName;
  readonly directions: PlannedDirections | null;
}

/** Low-bit copies of a model, before they are written: all that a placement needs of them. */
export interface LowBitPlan {
  /** Folder of the copies beside the prepared weights. */
  readonly name: string;
  readonly choices: ReadonlyMap<string, LowBitChoice>;
}

/** Used where nothing is said: the narrowest set of uncertain rows that needs no sample of a model's inputs, at half of F16. */
export const defaultLowBit: LowBitName = 'int8';

/** First projections and gates whose activation may be exactly zero, and whose weights are finite. */
export function certifiable(
  { config, matrices }: ModelDescription,
  finite: (id: string) => boolean,
): MatrixDescription[] {
  if (!isSparse(config.activation)) return [];
  return matrices.filter(
    ({ id, role, inputs }) =>
      (role === 'first' || role === 'gate') && inputs <= largestLowBitInputs && finite(id),
  );
}

/** One format for all layers. Throws `UsageError` `low-bit-format`. */
export function uniformLowBit(
  description: ModelDescription,
  finite: (id: string) => boolean,
  name: string,
): LowBitPlan {
  lowBitFormat(name);
  const format = name as LowBitName;
  const matrices = certifiable(description, finite);
  return {
    name,
    choices: new Map(matrices.map(({ id }) => [id, { format, directions: null }])),
  };
}

/** Bytes of a copy. */
export function lowBitBytes(
  { inputs, outputs }: MatrixDescription,
  { format, directions }: LowBitChoice,
): number {
  return lowBitLayout(lowBitFormat(format), inputs, outputs, directions?.count ?? 0).byteLength;
}

/**
 * The description as certificates use it: a matrix with a copy is stored neuron-major in a file of its own, so that its
 * rows can come alone.
 */
export function withNeuronRows(description: ModelDescription, plan: LowBitPlan): ModelDescription {
  const matrices = description.matrices.map((matrix) =>
    plan.choices.has(matrix.id)
      ? { ...matrix, layout: 'output-major' as const, neuronAxis: 'outputs' as const }
      : matrix,
  );
  return { ...description, matrices };
}
