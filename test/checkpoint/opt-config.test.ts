import { expect, test } from 'vitest';
import type { JsonValue } from '../../src/base/json.js';
import type { OptConfig } from '../../src/checkpoint/model-config.js';
import { readModelConfig } from '../../src/checkpoint/read-config.js';
import { expectError } from './support/errors.js';
import { tinyOptConfig } from './support/tiny-opt.js';

const read = (changes: object = {}, generation: JsonValue = null) =>
  readModelConfig({ ...tinyOptConfig, ...changes } as unknown as JsonValue, generation) as OptConfig;

function without(...fields: string[]): JsonValue {
  const config: Record<string, unknown> = { ...tinyOptConfig };
  for (const field of fields) delete config[field];
  return config as JsonValue;
}

test('absent keys take the defaults of OPTConfig', () => {
  expect(read()).toEqual({
    family: 'opt',
    architecture: 'OPTForCausalLM',
    vocabSize: 11,
    hiddenSize: 4,
    layers: 1,
    heads: 2,
    kvHeads: 2,
    headDim: 2,
    ffnSize: 6,
    activation: 'relu',
    activationThreshold: 0,
    maxPositions: 5,
    normEpsilon: 1e-5,
    tied: true,
    bosTokenId: 2,
    eosTokenIds: [2],
    embeddingSize: 4,
    positionOffset: 2,
    preNorm: true,
    finalNorm: true,
    bias: true,
    affineNorm: true,
  });
  expect(readModelConfig(without('max_position_embeddings', 'word_embed_proj_dim'), null)).toMatchObject({
    maxPositions: 2048,
    embeddingSize: 4,
  });
});

test('every switch of OPT is read', () => {
  expect(
    read({
      do_layer_norm_before: false,
      word_embed_proj_dim: 3,
      enable_bias: false,
      layer_norm_elementwise_affine: false,
      tie_word_embeddings: false,
      activation_function: 'gelu',
    }),
  ).toMatchObject({
    preNorm: false,
    finalNorm: false,
    embeddingSize: 3,
    bias: false,
    affineNorm: false,
    tied: false,
    activation: 'gelu',
  });
  expect(read({ _remove_final_layer_norm: true })).toMatchObject({ preNorm: true, finalNorm: false });
});

test.each([
  ['relu', 'relu'],
  ['relu2', 'relu2'],
  ['silu', 'silu'],
  ['swish', 'silu'],
  ['gelu', 'gelu'],
  ['gelu_new', 'gelu_tanh'],
  ['gelu_fast', 'gelu_tanh'],
  ['gelu_pytorch_tanh', 'gelu_tanh'],
  ['quick_gelu', 'quick_gelu'],
  ['sigmoid', 'sigmoid'],
  ['tanh', 'tanh'],
  ['linear', 'identity'],
])('activation "%s" is %s', (name, kind) => {
  expect(read({ activation_function: name }).activation).toBe(kind);
});

test.each(['relu6', 'leaky_relu', 'mish', 'ReLU', '', 'constructor', '__proto__', 'toString'])(
  'activation "%s" is refused by name',
  async (name) => {
    await expectError(
      () => read({ activation_function: name }),
      'unknown-activation',
      `"activation_function" is ${JSON.stringify(name)}`,
    );
  },
);

test('an absent activation is refused, never defaulted', async () => {
  await expectError(
    () => readModelConfig(without('activation_function'), null),
    'config-missing',
    '"activation_function" is absent',
  );
});

test.each(['vocab_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads', 'ffn_dim'])(
  'an absent "%s" is named',
  async (field) => {
    await expectError(
      () => readModelConfig(without(field), null),
      'config-missing',
      `Reading config.json failed: "${field}" is absent, wanted is a whole number from 1`,
    );
  },
);

const badSizes: unknown[] = ['4', 0, -4, 1.5, null, true, [4], {}, 2 ** 31, 1e300, '', 'NaN'];
test.each(badSizes)('a size of %j is refused with its field and value', async (value) => {
  for (const field of [
    'vocab_size',
    'hidden_size',
    'num_hidden_layers',
    'num_attention_heads',
    'ffn_dim',
    'max_position_embeddings',
  ]) {
    await expectError(
      () => read({ [field]: value }),
      'config-field',
      `"${field}" is ${JSON.stringify(value)}, wanted is a whole number from 1 to 2147483647`,
    );
  }
});

test.each([
  'do_layer_norm_before',
  '_remove_final_layer_norm',
  'enable_bias',
  'layer_norm_elementwise_affine',
  'tie_word_embeddings',
])('a switch "%s" that is no boolean is refused', async (field) => {
  for (const value of ['true', 1, null]) {
    await expectError(
      () => read({ [field]: value }),
      'config-field',
      `"${field}" is ${JSON.stringify(value)}, wanted is true or false`,
    );
  }
});

test('heads that do not divide the hidden size are refused', async () => {
  await expectError(
    () => read({ num_attention_heads: 3 }),
    'config-contradiction',
    '"hidden_size" is 4, a multiple of "num_attention_heads" (3) is wanted',
  );
});

test('the architecture is read from "architectures", else from "model_type"', async () => {
  expect(readModelConfig(without('architectures'), null).architecture).toBe('OPTForCausalLM');
  expect(readModelConfig(without('model_type'), null).architecture).toBe('OPTForCausalLM');
  await expectError(
    () => readModelConfig(without('architectures', 'model_type'), null),
    'config-missing',
    '"architectures" is absent',
  );
  await expectError(
    () => read({ architectures: ['GPT2LMHeadModel'], model_type: 'gpt2' }),
    'unknown-architecture',
    '"GPT2LMHeadModel"',
  );
  await expectError(
    () => read({ architectures: ['OPTForSequenceClassification'] }),
    'unknown-architecture',
    '"OPTForSequenceClassification"',
  );
  await expectError(
    () => read({ architectures: null, model_type: 'constructor' }),
    'unknown-architecture',
    '"constructor"',
  );
  await expectError(
    () => read({ architectures: ['LlamaForCausalLM'] }),
    'config-contradiction',
    '"model_type" says "opt"',
  );
  await expectError(() => read({ architectures: [] }), 'config-field', '"architectures" is []');
  await expectError(
    () => read({ architectures: 'OPTForCausalLM' }),
    'config-field',
    '"architectures" is "OPTForCausalLM"',
  );
});

test('a quantised checkpoint is refused', async () => {
  await expectError(
    () => read({ quantization_config: { bits: 4 } }),
    'quantized-checkpoint',
    '"quantization_config"',
  );
});

test.each([null, [], 3, 'x'])('a config that is %j is refused', async (value) => {
  await expectError(() => readModelConfig(value as JsonValue, null), 'config-field', 'an object is wanted');
});

test('generation_config.json goes before config.json, key by key', () => {
  expect(read({ eos_token_id: 7, bos_token_id: 5 })).toMatchObject({ eosTokenIds: [7], bosTokenId: 5 });
  expect(read({ eos_token_id: 7, bos_token_id: 5 }, { eos_token_id: [3, 4, 3] })).toMatchObject({
    eosTokenIds: [3, 4],
    bosTokenId: 5,
  });
  expect(read({ eos_token_id: 7 }, { bos_token_id: 1 })).toMatchObject({ eosTokenIds: [7], bosTokenId: 1 });
  expect(read({ eos_token_id: null })).toMatchObject({ eosTokenIds: [] });
  expect(read({}, { eos_token_id: null })).toMatchObject({ eosTokenIds: [] });
});

test.each(['2', -1, 1.5, ['2'], [null], {}, true])('an EOS id of %j is refused', async (value) => {
  const message = `"eos_token_id" is ${JSON.stringify(value)}, wanted is a token id, a list of token ids, or null`;
  await expectError(() => read({ eos_token_id: value }), 'config-field', message);
  await expectError(
    () => read({}, { eos_token_id: value } as unknown as JsonValue),
    'config-field',
    `generation_config.json failed: ${message}`,
  );
});
