import { z } from 'zod';
import { InputError } from '../base/errors.js';
import type { JsonObject } from '../base/json.js';
import { readActivation } from './activation-name.js';
import { contradiction, fieldError, flag, positive, readFields, size } from './config-fields.js';
import { mergeSpecialTokens, readSpecialTokens, type SpecialTokens } from './generation-config.js';
import { type LlamaVariant, llamaVariants } from './llama-variants.js';
import type { LlamaConfig } from './model-config.js';
import { agree, readRopeConfig } from './rope-config.js';
import { refuseSlidingWindow } from './sliding-window.js';

const schema = z.object({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  intermediate_size: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  max_position_embeddings: size.optional(),
  rms_norm_eps: positive.optional(),
  norm_eps: positive.optional(),
  tie_word_embeddings: flag.optional(),
  attention_bias: flag.nullish(),
  mlp_bias: flag.nullish(),
  partial_rotary_factor: positive.nullish(),
});
type Fields = z.infer<typeof schema>;

/**
 * Reads the config.json of a Llama, Qwen2, Mistral, Nemotron or Arcee model. Absent keys take the defaults of that
 * architecture's configuration class in transformers, except the sizes and the activation, which must be there.
 * Throws `InputError` naming the field.
 */
export function readLlamaConfig(
  config: JsonObject,
  architecture: keyof typeof llamaVariants,
  generation: SpecialTokens | null,
): LlamaConfig {
  const variant: LlamaVariant = llamaVariants[architecture];
  const fields = readFields(schema, config, 'config.json');
  const { kvHeads, headDim } = readHeads(fields, variant);
  const statedPositions = fields.max_position_embeddings ?? variant.maxPositions;
  const rope = readRopeConfig(config, statedPositions, variant.ropeTheta);
  refuseSlidingWindow(config, variant, fields.num_hidden_layers, rope.maxPositions);
  const biases = readBiases(fields, variant);
  const rotary = readRotary(fields, variant, headDim, rope.partialFactor);
  if (rope.scaling.type === 'dynamic' && rotary < 4) {
    throw contradiction(
      'config.json',
      `dynamic RoPE scaling raises the base to the power of ${rotary} / (${rotary} - 2), at least 4 rotated elements are wanted`,
      ['rope_scaling', 'head_dim'],
    );
  }
  return {
    family: 'llama',
    architecture,
    vocabSize: fields.vocab_size,
    hiddenSize: fields.hidden_size,
    layers: fields.num_hidden_layers,
    heads: fields.num_attention_heads,
    kvHeads,
    headDim,
    ffnSize: fields.intermediate_size,
    ...readActivation(config, 'hidden_act'),
    maxPositions: rope.maxPositions,
    normEpsilon: fields[variant.epsilonField] ?? variant.epsilon,
    tied: fields.tie_word_embeddings ?? false,
    ...mergeSpecialTokens(generation, readSpecialTokens(config, 'config.json'), variant),
    norm: variant.norm,
    gammaPlusOne: variant.gammaPlusOne,
    gated: variant.gated,
    ...biases,
    ropeTheta: rope.theta,
    rotary,
    ropeScaling: rope.scaling,
  };
}

function readHeads(fields: Fields, variant: LlamaVariant): { kvHeads: number; headDim: number } {
  const heads = fields.num_attention_heads;
  const kvHeads =
    fields.num_key_value_heads === undefined
      ? (variant.kvHeads ?? heads)
      : (fields.num_key_value_heads ?? heads);
  if (heads % kvHeads !== 0) {
    throw contradiction(
      'config.json',
      `"num_attention_heads" is ${heads}, a multiple of "num_key_value_heads" (${kvHeads}) is wanted`,
      ['num_attention_heads', 'num_key_value_heads'],
    );
  }
  if (fields.head_dim == null && fields.hidden_size % heads !== 0) {
    throw contradiction(
      'config.json',
      `"hidden_size" is ${fields.hidden_size} and "head_dim" is absent, a multiple of "num_attention_heads" (${heads}) is wanted`,
      ['hidden_size', 'num_attention_heads', 'head_dim'],
    );
  }
  return { kvHeads, headDim: fields.head_dim ?? fields.hidden_size / heads };
}

function readRotary(
  fields: Fields,
  variant: LlamaVariant,
  headDim: number,
  ropeFactor: number | undefined,
): number {
  const factor =
    agree('partial_rotary_factor', [
      ['"partial_rotary_factor"', fields.partial_rotary_factor],
      ['the rope parameters', ropeFactor],
    ]) ?? variant.partialRotaryFactor;
  if (factor > 1 || (!variant.partialRotary && factor !== 1)) {
    const wanted = variant.partialRotary
      ? 'a number above 0, at most 1'
      : '1: this architecture rotates whole heads';
    throw fieldError('config.json', 'partial_rotary_factor', factor, wanted);
  }
  const rotary = Math.floor(headDim * factor);
  if (rotary < 2 || rotary % 2 !== 0) {
    throw contradiction(
      'config.json',
      `${rotary} elements of a head of ${headDim} are rotated, an even number from 2 is wanted`,
      ['head_dim', 'partial_rotary_factor'],
    );
  }
  return rotary;
}

function readBiases(
  fields: Fields,
  variant: LlamaVariant,
): { qkvBias: boolean; outputBias: boolean; ffnBias: boolean } {
  const { biases } = variant;
  if (biases === 'configured') {
    const attention = fields.attention_bias ?? false;
    return { qkvBias: attention, outputBias: attention, ffnBias: fields.mlp_bias ?? false };
  }
  // A flag that transformers ignores for this architecture must not seem to be followed.
  const states = { attention_bias: biases === 'qkv', mlp_bias: false };
  for (const field of ['attention_bias', 'mlp_bias'] as const) {
    if (fields[field] != null && fields[field] !== states[field]) {
      throw new InputError(
        'config-field',
        `Reading config.json failed: "${field}" is ${fields[field]}, wanted is ${states[field]}, which this architecture fixes`,
        { field },
      );
    }
  }
  return { qkvBias: biases === 'qkv', outputBias: false, ffnBias: false };
}
