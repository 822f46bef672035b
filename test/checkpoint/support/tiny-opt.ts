import { f16Tensors } from './safetensors-file.js';

/** The smallest OPT whose sizes all differ. */
export const tinyOptConfig = {
  architectures: ['OPTForCausalLM'],
  model_type: 'opt',
  activation_function: 'relu',
  vocab_size: 11,
  hidden_size: 4,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  ffn_dim: 6,
  max_position_embeddings: 5,
  word_embed_proj_dim: 4,
};

export const tinyOptShapes: Readonly<Record<string, readonly number[]>> = {
  'embed_tokens.weight': [11, 4],
  'embed_positions.weight': [7, 4],
  ...Object.fromEntries(
    ['q_proj', 'k_proj', 'v_proj', 'out_proj'].flatMap((name) => [
      [`layers.0.self_attn.${name}.weight`, [4, 4]],
      [`layers.0.self_attn.${name}.bias`, [4]],
    ]),
  ),
  ...Object.fromEntries(
    ['layers.0.self_attn_layer_norm', 'layers.0.final_layer_norm', 'final_layer_norm'].flatMap((name) => [
      [`${name}.weight`, [4]],
      [`${name}.bias`, [4]],
    ]),
  ),
  'layers.0.fc1.weight': [6, 4],
  'layers.0.fc1.bias': [6],
  'layers.0.fc2.weight': [4, 6],
  'layers.0.fc2.bias': [4],
};

/** Its tensors, behind a prefix, changed as wanted (null removes one). */
export function tinyOptTensors(
  changes: Readonly<Record<string, readonly number[] | null>> = {},
  prefix = 'model.decoder.',
): ReturnType<typeof f16Tensors> {
  const shapes = Object.fromEntries(
    Object.entries(tinyOptShapes).map(([name, shape]) => [prefix + name, shape]),
  );
  const merged = Object.entries({ ...shapes, ...changes }).filter(
    (entry): entry is [string, readonly number[]] => entry[1] !== null,
  );
  return f16Tensors(Object.fromEntries(merged));
}
