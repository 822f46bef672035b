/** What an architecture of the Llama family fixes, and what its configuration class in transformers fills in. */
export interface LlamaVariant {
  readonly norm: 'rms' | 'layer';
  readonly gammaPlusOne: boolean;
  readonly gated: boolean;
  /** `configured`: by attention_bias and mlp_bias; `qkv`: query, key and value always; `none`. */
  readonly biases: 'configured' | 'qkv' | 'none';
  readonly partialRotary: boolean;
  readonly partialRotaryFactor: number;
  readonly epsilonField: 'rms_norm_eps' | 'norm_eps';
  readonly epsilon: number;
  /** Where `num_key_value_heads` is absent; null: as many as heads. */
  readonly kvHeads: number | null;
  readonly maxPositions: number;
  readonly ropeTheta: number;
  readonly slidingWindow: 'none' | 'qwen2' | 'mistral';
  readonly bosTokenId: number | null;
  readonly eosTokenIds: readonly number[];
}

const llama: LlamaVariant = {
  norm: 'rms',
  gammaPlusOne: false,
  gated: true,
  biases: 'configured',
  partialRotary: false,
  partialRotaryFactor: 1,
  epsilonField: 'rms_norm_eps',
  epsilon: 1e-6,
  kvHeads: null,
  maxPositions: 2048,
  ropeTheta: 10000,
  slidingWindow: 'none',
  bosTokenId: 1,
  eosTokenIds: [2],
};

export const llamaVariants = {
  LlamaForCausalLM: llama,
  Qwen2ForCausalLM: {
    ...llama,
    biases: 'qkv',
    kvHeads: 32,
    maxPositions: 32768,
    slidingWindow: 'qwen2',
    bosTokenId: null,
    eosTokenIds: [],
  },
  MistralForCausalLM: {
    ...llama,
    biases: 'none',
    kvHeads: 8,
    maxPositions: 131072,
    slidingWindow: 'mistral',
  },
  NemotronForCausalLM: {
    ...llama,
    norm: 'layer',
    gammaPlusOne: true,
    gated: false,
    partialRotary: true,
    partialRotaryFactor: 0.5,
    epsilonField: 'norm_eps',
    epsilon: 1e-5,
    maxPositions: 4096,
    bosTokenId: 2,
    eosTokenIds: [3],
  },
  ArceeForCausalLM: {
    ...llama,
    gated: false,
    epsilon: 1e-5,
    maxPositions: 4096,
    bosTokenId: 128000,
    eosTokenIds: [128001],
  },
} as const satisfies Record<string, LlamaVariant>;
