/** Small configurations of each architecture of the Llama family, with the keys that its class writes. */
export const llamaConfig = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  hidden_act: 'relu',
  vocab_size: 10,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 6,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
};

export const qwen2Config = {
  ...llamaConfig,
  architectures: ['Qwen2ForCausalLM'],
  model_type: 'qwen2',
  hidden_act: 'silu',
  head_dim: undefined,
  use_sliding_window: false,
  sliding_window: 16,
  max_window_layers: 1,
};

export const mistralConfig = {
  ...llamaConfig,
  architectures: ['MistralForCausalLM'],
  model_type: 'mistral',
  sliding_window: null,
};

export const nemotronConfig = {
  architectures: ['NemotronForCausalLM'],
  model_type: 'nemotron',
  hidden_act: 'relu2',
  vocab_size: 10,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  max_position_embeddings: 64,
  norm_eps: 1e-5,
  partial_rotary_factor: 0.5,
  rope_theta: 10000,
};

export const arceeConfig = {
  architectures: ['ArceeForCausalLM'],
  model_type: 'arcee',
  hidden_act: 'relu2',
  vocab_size: 10,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_scaling: {
    rope_type: 'yarn',
    factor: 2,
    original_max_position_embeddings: 32,
    beta_fast: 32,
    beta_slow: 1,
    mscale: 1,
  },
};
