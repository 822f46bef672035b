import type { StoredType } from '../base/stored-type.js';
import type { ModelConfig } from './model-config.js';

/**
 * What a tensor is for. `first` and `second` are the two projections of a plain FFN (OPT fc1/fc2, Nemotron up/down);
 * gated FFNs have `gate`, `up` and `second` (down).
 */
export type MatrixRole =
  | 'project-in'
  | 'query'
  | 'key'
  | 'value'
  | 'output'
  | 'first'
  | 'gate'
  | 'up'
  | 'second'
  | 'project-out'
  | 'head';

/**
 * A projection as the prepared form stores it. Ids are `layers.<n>.<role>` inside a layer, else the role.
 * Matrices are input-major `[inputs, outputs]`, except `up` of a sparse gated FFN, which is output-major: there a
 * stored row is a neuron, as it is in every `second`.
 */
export interface MatrixDescription {
  readonly id: string;
  readonly role: MatrixRole;
  readonly layer: number | null;
  readonly inputs: number; // K
  readonly outputs: number; // N
  readonly type: StoredType;
  readonly layout: 'input-major' | 'output-major';
  /** Neurons are the inputs (`second`) or the outputs (`up`); null where every row always matters. */
  readonly neuronAxis: 'inputs' | 'outputs' | null;
  readonly biasId: string | null;
  /** Tensor of the checkpoint, `[outputs, inputs]` there. */
  readonly sourceTensor: string;
}

/** Biases, norms: widened to F32 in the prepared form. Ids: `<matrix id>.bias`, `layers.3.attention-norm.gamma`, … */
export interface VectorDescription {
  readonly id: string;
  readonly width: number;
  /** Added to every element when prepared (layernorm1p), else 0. */
  readonly offset: 0 | 1;
  readonly sourceTensor: string;
}

/** Looked up by row: `token-embedding` `[vocabSize, embeddingSize]`, `position-embedding`. */
export interface TableDescription {
  readonly id: 'token-embedding' | 'position-embedding';
  readonly rows: number;
  readonly columns: number;
  readonly type: StoredType;
  readonly sourceTensor: string;
}

/** Everything that acquisition and the forward pass need to know of a model, without a byte of its weights. */
export interface ModelDescription {
  readonly config: ModelConfig;
  /** In the order in which a forward pass uses them. */
  readonly matrices: readonly MatrixDescription[];
  readonly vectors: readonly VectorDescription[];
  readonly tables: readonly TableDescription[];
  /** Said once to the user: a tied flag that the file contradicts, an ignored tensor, dense activations. */
  readonly notes: readonly string[];
}
