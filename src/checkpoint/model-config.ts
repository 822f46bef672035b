/** Activations that Waybill computes; see docs/numerics.md for each definition. */
export const activationKinds = [
  'relu',
  'relu2',
  'fatrelu',
  'silu',
  'gelu',
  'gelu_tanh',
  'quick_gelu',
  'sigmoid',
  'tanh',
  'identity',
] as const;
export type ActivationKind = (typeof activationKinds)[number];

/** True where an activation gives exact zeros, which is what packets live on. */
export function isSparse(activation: ActivationKind): boolean {
  return activation === 'relu' || activation === 'relu2' || activation === 'fatrelu';
}

interface CommonConfig {
  /** `architectures[0]` of config.json. */
  readonly architecture: string;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly ffnSize: number;
  readonly activation: ActivationKind;
  /** Threshold of fatrelu, else 0. */
  readonly activationThreshold: number;
  readonly maxPositions: number;
  readonly normEpsilon: number;
  /** The head shares the token table. */
  readonly tied: boolean;
  readonly bosTokenId: number | null;
  /** From generation_config.json where present, else config.json. */
  readonly eosTokenIds: readonly number[];
}

export interface OptConfig extends CommonConfig {
  readonly family: 'opt';
  /** `word_embed_proj_dim`; where it differs from hiddenSize, project_in / project_out exist. */
  readonly embeddingSize: number;
  /** Rows of the position table before position 0 (2). */
  readonly positionOffset: number;
  readonly preNorm: boolean;
  /** A norm after the last layer: pre-norm models without `_remove_final_layer_norm`. */
  readonly finalNorm: boolean;
  readonly bias: boolean;
  readonly affineNorm: boolean;
}

export type RopeScaling =
  | { readonly type: 'default' }
  | { readonly type: 'linear'; readonly factor: number }
  | { readonly type: 'dynamic'; readonly factor: number; readonly originalPositions: number }
  | {
      readonly type: 'llama3';
      readonly factor: number;
      readonly lowFrequencyFactor: number;
      readonly highFrequencyFactor: number;
      readonly originalPositions: number;
    }
  | {
      readonly type: 'yarn';
      readonly factor: number;
      readonly attentionFactor: number | null;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly mscale: number | null;
      readonly mscaleAllDim: number | null;
      readonly truncate: boolean;
      readonly originalPositions: number;
    };

/** Llama, Qwen2, Nemotron, Arcee. */
export interface LlamaConfig extends CommonConfig {
  readonly family: 'llama';
  readonly norm: 'rms' | 'layer';
  /** `layernorm1p`: the stored gamma is one less than the factor. Folded into the prepared form. */
  readonly gammaPlusOne: boolean;
  /** gate and up projections; false for up and down alone (Nemotron, Arcee). */
  readonly gated: boolean;
  readonly qkvBias: boolean;
  readonly outputBias: boolean;
  readonly ffnBias: boolean;
  readonly ropeTheta: number;
  /** Rotated elements of a head (partial rotary), even. */
  readonly rotary: number;
  readonly ropeScaling: RopeScaling;
}

export type ModelConfig = OptConfig | LlamaConfig;
