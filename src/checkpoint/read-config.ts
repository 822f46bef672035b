import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.js';
import { fieldError, isSet, show } from './config-fields.js';
import { readSpecialTokens } from './generation-config.js';
import { readLlamaConfig } from './llama-config.js';
import type { llamaVariants } from './llama-variants.js';
import type { ModelConfig } from './model-config.js';
import { readOptConfig } from './opt-config.js';

/** Old configurations name no architecture; their model type means the causal language model of that family. */
const byModelType: Readonly<Record<string, Architecture>> = {
  opt: 'OPTForCausalLM',
  llama: 'LlamaForCausalLM',
  qwen2: 'Qwen2ForCausalLM',
  mistral: 'MistralForCausalLM',
  nemotron: 'NemotronForCausalLM',
  arcee: 'ArceeForCausalLM',
};

type Architecture = 'OPTForCausalLM' | keyof typeof llamaVariants;

/**
 * Turns config.json, and generation_config.json where there is one, into a `ModelConfig`. Throws `InputError`
 * (`unknown-architecture`, `config-missing`, `config-field`, `config-contradiction`, `unknown-activation`,
 * `unknown-rope-type`, `sliding-window`) naming the field, its state and the wanted state.
 */
export function readModelConfig(config: JsonValue, generationConfig: JsonValue | null): ModelConfig {
  if (!isJsonObject(config)) {
    throw new InputError(
      'config-field',
      `Reading config.json failed: it is ${show(config)}, an object is wanted`,
    );
  }
  const generation =
    generationConfig === null ? null : readSpecialTokens(generationConfig, 'generation_config.json');
  refuseQuantized(config);
  const architecture = readArchitecture(config);
  return architecture === 'OPTForCausalLM'
    ? readOptConfig(config, architecture, generation)
    : readLlamaConfig(config, architecture, generation);
}

function readArchitecture(config: JsonObject): Architecture {
  const { architectures, model_type: modelType } = config;
  const wanted = `one of ${Object.values(byModelType).join(', ')}`;
  let name: string;
  if (isSet(config, 'architectures')) {
    const first = Array.isArray(architectures) ? architectures[0] : undefined;
    if (typeof first !== 'string') {
      throw fieldError(
        'config.json',
        'architectures',
        architectures,
        `a list whose first entry is ${wanted}`,
      );
    }
    name = first;
    const known = Object.values(byModelType).includes(name as Architecture);
    const expected =
      typeof modelType === 'string' && Object.hasOwn(byModelType, modelType) ? byModelType[modelType] : null;
    if (known && expected !== null && expected !== name) {
      throw new InputError(
        'config-contradiction',
        `Reading config.json failed: "architectures" says "${name}", "model_type" says ${show(modelType)}; one model is wanted`,
        { fields: ['architectures', 'model_type'] },
      );
    }
  } else {
    if (typeof modelType !== 'string') {
      throw fieldError(
        'config.json',
        'architectures',
        architectures,
        `a list whose first entry is ${wanted}`,
      );
    }
    name = Object.hasOwn(byModelType, modelType) ? byModelType[modelType]! : modelType;
  }
  const architecture = Object.values(byModelType).find((known) => known === name);
  if (architecture === undefined) {
    throw new InputError(
      'unknown-architecture',
      `Reading config.json failed: the architecture is ${JSON.stringify(name.slice(0, 100))}, wanted is ${wanted}`,
      { architecture: name },
    );
  }
  return architecture;
}

function refuseQuantized(config: JsonObject): void {
  if (!isSet(config, 'quantization_config')) return;
  throw new InputError(
    'quantized-checkpoint',
    'Reading config.json failed: "quantization_config" is there, wanted is a checkpoint in F32, F16 or BF16',
    { field: 'quantization_config' },
  );
}
