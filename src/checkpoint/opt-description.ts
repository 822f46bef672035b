import { DescriptionBuilder } from './description-builder.js';
import type { OptConfig } from './model-config.js';
import type { ModelDescription } from './model-description.js';
import type { StoredTensor } from './stored-tensor.js';

/** OPTForCausalLM saves `model.decoder.`, OPTModel `decoder.`, its decoder alone nothing. */
export const optPrefixes = ['model.decoder.', 'decoder.', ''];

/** Describes an OPT checkpoint. Throws `InputError` naming the tensor that is missing or misshapen. */
export function describeOpt(
  config: OptConfig,
  tensors: ReadonlyMap<string, StoredTensor>,
  headDiffers: boolean,
): ModelDescription {
  const builder = new DescriptionBuilder(config, tensors, optPrefixes);
  const { hiddenSize, embeddingSize, ffnSize, bias } = config;
  const norm = (id: string, modules: string | readonly string[]) => {
    if (config.affineNorm) builder.norm({ id, modules, beta: true, offset: 0 });
  };
  builder.table('token-embedding', 'embed_tokens', config.vocabSize, embeddingSize);
  builder.table(
    'position-embedding',
    'embed_positions',
    config.maxPositions + config.positionOffset,
    hiddenSize,
  );
  const projected = embeddingSize !== hiddenSize;
  if (projected) {
    builder.matrix({
      role: 'project-in',
      layer: null,
      module: 'project_in',
      inputs: embeddingSize,
      outputs: hiddenSize,
      bias: false,
    });
  }
  for (let layer = 0; layer < config.layers; layer++) {
    const at = `layers.${layer}`;
    norm(`${at}.attention-norm`, `${at}.self_attn_layer_norm`);
    const square = { layer, inputs: hiddenSize, outputs: hiddenSize, bias };
    builder.matrix({ ...square, role: 'query', module: `${at}.self_attn.q_proj` });
    builder.matrix({ ...square, role: 'key', module: `${at}.self_attn.k_proj` });
    builder.matrix({ ...square, role: 'value', module: `${at}.self_attn.v_proj` });
    builder.matrix({ ...square, role: 'output', module: `${at}.self_attn.out_proj` });
    norm(`${at}.ffn-norm`, `${at}.final_layer_norm`);
    builder.matrix({ role: 'first', layer, module: `${at}.fc1`, inputs: hiddenSize, outputs: ffnSize, bias });
    builder.matrix({
      role: 'second',
      layer,
      module: `${at}.fc2`,
      inputs: ffnSize,
      outputs: hiddenSize,
      bias,
    });
  }
  // Checkpoints from before transformers 4.21 call it layer_norm.
  if (config.finalNorm) norm('final-norm', ['final_layer_norm', 'layer_norm']);
  if (projected) {
    builder.matrix({
      role: 'project-out',
      layer: null,
      module: 'project_out',
      inputs: hiddenSize,
      outputs: embeddingSize,
      bias: false,
    });
  }
  builder.head(embeddingSize, headDiffers);
  return builder.finish();
}
