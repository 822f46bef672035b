import { DescriptionBuilder } from './description-builder.js';
import type { LlamaConfig } from './model-config.js';
import type { ModelDescription } from './model-description.js';
import type { StoredTensor } from './stored-tensor.js';

export const llamaPrefixes = ['model.', ''];

/** Describes a checkpoint of the Llama family. Throws `InputError` naming the tensor that is missing or misshapen. */
export function describeLlama(
  config: LlamaConfig,
  tensors: ReadonlyMap<string, StoredTensor>,
  headDiffers: boolean,
): ModelDescription {
  const builder = new DescriptionBuilder(config, tensors, llamaPrefixes);
  const { hiddenSize, ffnSize, qkvBias, outputBias, ffnBias } = config;
  const norm = (id: string, modules: string) =>
    builder.norm({ id, modules, beta: config.norm === 'layer', offset: config.gammaPlusOne ? 1 : 0 });
  const queryWidth = config.heads * config.headDim;
  const kvWidth = config.kvHeads * config.headDim;
  builder.table('token-embedding', 'embed_tokens', config.vocabSize, hiddenSize);
  for (let layer = 0; layer < config.layers; layer++) {
    const at = `layers.${layer}`;
    norm(`${at}.attention-norm`, `${at}.input_layernorm`);
    const qkv = { layer, inputs: hiddenSize, bias: qkvBias };
    builder.matrix({ ...qkv, role: 'query', module: `${at}.self_attn.q_proj`, outputs: queryWidth });
    builder.matrix({ ...qkv, role: 'key', module: `${at}.self_attn.k_proj`, outputs: kvWidth });
    builder.matrix({ ...qkv, role: 'value', module: `${at}.self_attn.v_proj`, outputs: kvWidth });
    builder.matrix({
      role: 'output',
      layer,
      module: `${at}.self_attn.o_proj`,
      inputs: queryWidth,
      outputs: hiddenSize,
      bias: outputBias,
    });
    norm(`${at}.ffn-norm`, `${at}.post_attention_layernorm`);
    const widen = { layer, inputs: hiddenSize, outputs: ffnSize, bias: ffnBias };
    if (config.gated) {
      builder.matrix({ ...widen, role: 'gate', module: `${at}.mlp.gate_proj` });
      builder.matrix({ ...widen, role: 'up', module: `${at}.mlp.up_proj` });
    } else {
      builder.matrix({ ...widen, role: 'first', module: `${at}.mlp.up_proj` });
    }
    builder.matrix({
      role: 'second',
      layer,
      module: `${at}.mlp.down_proj`,
      inputs: ffnSize,
      outputs: hiddenSize,
      bias: ffnBias,
    });
  }
  norm('final-norm', 'norm');
  builder.head(hiddenSize, headDiffers);
  return builder.finish();
}
