import { z } from 'zod';
import type { JsonObject } from '../base/json.js';
import { readActivation } from './activation-name.js';
import { contradiction, flag, readFields, size } from './config-fields.js';
import { mergeSpecialTokens, readSpecialTokens, type SpecialTokens } from './generation-config.js';
import type { OptConfig } from './model-config.js';

/** Absent keys take the defaults of transformers' OPTConfig, except the sizes, which must be there. */
const schema = z.object({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  ffn_dim: size,
  max_position_embeddings: size.optional(),
  word_embed_proj_dim: size.nullish(),
  do_layer_norm_before: flag.optional(),
  _remove_final_layer_norm: flag.optional(),
  enable_bias: flag.optional(),
  layer_norm_elementwise_affine: flag.optional(),
  tie_word_embeddings: flag.optional(),
});

/** OPTConfig has no field for it: torch's LayerNorm default is what OPT runs with. */
const layerNormEpsilon = 1e-5;

/** Reads the config.json of an OPTForCausalLM. Throws `InputError` naming the field. */
export function readOptConfig(
  config: JsonObject,
  architecture: string,
  generation: SpecialTokens | null,
): OptConfig {
  const fields = readFields(schema, config, 'config.json');
  const heads = fields.num_attention_heads;
  const hiddenSize = fields.hidden_size;
  if (hiddenSize % heads !== 0) {
    throw contradiction(
      'config.json',
      `"hidden_size" is ${hiddenSize}, a multiple of "num_attention_heads" (${heads}) is wanted`,
      ['hidden_size', 'num_attention_heads'],
    );
  }
  const preNorm = fields.do_layer_norm_before ?? true;
  return {
    family: 'opt',
    architecture,
    vocabSize: fields.vocab_size,
    hiddenSize,
    layers: fields.num_hidden_layers,
    heads,
    kvHeads: heads,
    headDim: hiddenSize / heads,
    ffnSize: fields.ffn_dim,
    ...readActivation(config, 'activation_function'),
    maxPositions: fields.max_position_embeddings ?? 2048,
    normEpsilon: layerNormEpsilon,
    tied: fields.tie_word_embeddings ?? true,
    ...mergeSpecialTokens(generation, readSpecialTokens(config, 'config.json'), {
      bosTokenId: 2,
      eosTokenIds: [2],
    }),
    embeddingSize: fields.word_embed_proj_dim ?? hiddenSize,
    positionOffset: 2,
    preNorm,
    finalNorm: preNorm && !(fields._remove_final_layer_norm ?? false),
    bias: fields.enable_bias ?? true,
    affineNorm: fields.layer_norm_elementwise_affine ?? true,
  };
}
