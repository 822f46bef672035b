import { expect, test } from 'vitest';
import type { JsonValue } from '../../src/base/json.js';
import type { LlamaConfig } from '../../src/checkpoint/model-config.js';
import { readModelConfig } from '../../src/checkpoint/read-config.js';
import { expectError } from './support/errors.js';
import {
  arceeConfig,
  llamaConfig,
  mistralConfig,
  nemotronConfig,
  qwen2Config,
} from './support/llama-configs.js';

/** Undefined removes a key. */
function read(config: object, changes: object = {}): LlamaConfig {
  const merged = JSON.parse(JSON.stringify({ ...config, ...changes })) as JsonValue;
  return readModelConfig(merged, null) as LlamaConfig;
}

test('Llama: sizes, heads, defaults', () => {
  expect(read(llamaConfig)).toEqual({
    family: 'llama',
    architecture: 'LlamaForCausalLM',
    vocabSize: 10,
    hiddenSize: 8,
    layers: 2,
    heads: 4,
    kvHeads: 2,
    headDim: 6,
    ffnSize: 12,
    activation: 'relu',
    activationThreshold: 0,
    maxPositions: 64,
    normEpsilon: 1e-5,
    tied: false,
    bosTokenId: 1,
    eosTokenIds: [2],
    norm: 'rms',
    gammaPlusOne: false,
    gated: true,
    qkvBias: false,
    outputBias: false,
    ffnBias: false,
    ropeTheta: 10000,
    rotary: 6,
    ropeScaling: { type: 'default' },
  });
  expect(
    read(llamaConfig, {
      num_key_value_heads: undefined,
      head_dim: null,
      rms_norm_eps: undefined,
      max_position_embeddings: undefined,
      attention_bias: true,
      mlp_bias: true,
      tie_word_embeddings: true,
    }),
  ).toMatchObject({
    kvHeads: 4,
    headDim: 2,
    rotary: 2,
    normEpsilon: 1e-6,
    maxPositions: 2048,
    qkvBias: true,
    outputBias: true,
    ffnBias: true,
    tied: true,
  });
});

test('Qwen2: biases of query, key and value alone; no special tokens by default', () => {
  expect(read(qwen2Config)).toMatchObject({
    gated: true,
    qkvBias: true,
    outputBias: false,
    ffnBias: false,
    headDim: 2,
    bosTokenId: null,
    eosTokenIds: [],
    activation: 'silu',
  });
});

test('Mistral: no biases', () => {
  expect(read(mistralConfig)).toMatchObject({ gated: true, qkvBias: false, outputBias: false, norm: 'rms' });
});

test('Nemotron: squared ReLU, no gate, layernorm1p, partial rotary', () => {
  expect(read(nemotronConfig)).toMatchObject({
    activation: 'relu2',
    gated: false,
    norm: 'layer',
    gammaPlusOne: true,
    headDim: 4,
    rotary: 2,
    normEpsilon: 1e-5,
    bosTokenId: 2,
    eosTokenIds: [3],
  });
  expect(read(nemotronConfig, { partial_rotary_factor: undefined }).rotary).toBe(2);
  expect(read(nemotronConfig, { partial_rotary_factor: 1 }).rotary).toBe(4);
  const parameters = { rope_type: 'default', rope_theta: 500, partial_rotary_factor: 1 };
  expect(
    read(nemotronConfig, {
      partial_rotary_factor: undefined,
      rope_theta: undefined,
      rope_parameters: parameters,
    }),
  ).toMatchObject({ rotary: 4, ropeTheta: 500 });
});

test('Arcee: squared ReLU, no gate, RMS norm, yarn', () => {
  expect(read(arceeConfig)).toMatchObject({
    activation: 'relu2',
    gated: false,
    norm: 'rms',
    gammaPlusOne: false,
    headDim: 4,
    rotary: 4,
    bosTokenId: 128000,
    eosTokenIds: [128001],
    maxPositions: 64,
    ropeScaling: { type: 'yarn', factor: 2, originalPositions: 32 },
  });
});

test('fatrelu takes its threshold from "hidden_act_param" alone', async () => {
  expect(read(llamaConfig, { hidden_act: 'fatrelu', hidden_act_param: 0.01 })).toMatchObject({
    activation: 'fatrelu',
    activationThreshold: 0.01,
  });
  for (const field of ['fatrelu_threshold', 'activation_threshold']) {
    await expectError(
      () => read(llamaConfig, { hidden_act: 'fatrelu', [field]: 0.01 }),
      'config-missing',
      '"hidden_act_param" is absent',
    );
  }
});

test('fatrelu without a threshold, or with a bad one, is refused', async () => {
  await expectError(
    () => read(llamaConfig, { hidden_act: 'fatrelu' }),
    'config-missing',
    '"hidden_act_param" is absent',
  );
  for (const value of ['0.01', -0.5, 1e39, true]) {
    await expectError(
      () => read(llamaConfig, { hidden_act: 'fatrelu', hidden_act_param: value }),
      'config-field',
      '"hidden_act_param"',
    );
  }
  expect(read(llamaConfig, { hidden_act: 'relu', hidden_act_param: 0.01 }).activationThreshold).toBe(0);
});

test('an unknown or absent activation is refused by name', async () => {
  await expectError(
    () => read(llamaConfig, { hidden_act: 'xielu' }),
    'unknown-activation',
    '"hidden_act" is "xielu"',
  );
  await expectError(
    () => read(llamaConfig, { hidden_act: undefined }),
    'config-missing',
    '"hidden_act" is absent',
  );
  await expectError(() => read(llamaConfig, { hidden_act: 7 }), 'config-field', '"hidden_act" is 7');
});

test.each([
  [
    { num_key_value_heads: 3 },
    '"num_attention_heads" is 4, a multiple of "num_key_value_heads" (3) is wanted',
  ],
  [{ num_key_value_heads: 8 }, 'a multiple of "num_key_value_heads" (8) is wanted'],
  [{ head_dim: undefined, hidden_size: 10 }, '"hidden_size" is 10 and "head_dim" is absent'],
  [{ head_dim: 5 }, '5 elements of a head of 5 are rotated, an even number from 2 is wanted'],
])('contradictory sizes %j are refused', async (changes, message) => {
  await expectError(() => read(llamaConfig, changes), 'config-contradiction', message);
});

test.each([
  ['rms_norm_eps', '1e-5'],
  ['rms_norm_eps', 0],
  ['rms_norm_eps', -1],
  ['rope_theta', '10000'],
  ['rope_theta', 0],
  ['intermediate_size', '12'],
  ['num_key_value_heads', 0],
  ['head_dim', '6'],
  ['attention_bias', 'false'],
  ['mlp_bias', 0],
  ['partial_rotary_factor', 0],
])('"%s" of %j is refused', async (field, value) => {
  await expectError(
    () => read(llamaConfig, { [field]: value }),
    'config-field',
    `"${field}" is ${JSON.stringify(value)}, wanted is`,
  );
});

test('partial rotary is refused where whole heads are rotated, and beyond a head', async () => {
  await expectError(
    () => read(llamaConfig, { partial_rotary_factor: 0.5 }),
    'config-field',
    '"partial_rotary_factor" is 0.5, wanted is 1',
  );
  expect(read(llamaConfig, { partial_rotary_factor: 1 }).rotary).toBe(6);
  await expectError(
    () => read(nemotronConfig, { partial_rotary_factor: 1.5 }),
    'config-field',
    '"partial_rotary_factor" is 1.5',
  );
  await expectError(
    () => read(nemotronConfig, { partial_rotary_factor: 0.25 }),
    'config-contradiction',
    '1 elements of a head of 4',
  );
  await expectError(
    () => read(nemotronConfig, { rope_parameters: { rope_type: 'default', partial_rotary_factor: 1 } }),
    'config-contradiction',
    'gives partial_rotary_factor 0.5',
  );
});

test('a bias flag that the architecture ignores must not contradict it', async () => {
  expect(read(qwen2Config, { attention_bias: true, mlp_bias: false }).qkvBias).toBe(true);
  await expectError(
    () => read(qwen2Config, { attention_bias: false }),
    'config-field',
    '"attention_bias" is false, wanted is true',
  );
  await expectError(
    () => read(qwen2Config, { mlp_bias: true }),
    'config-field',
    '"mlp_bias" is true, wanted is false',
  );
  await expectError(
    () => read(mistralConfig, { attention_bias: true }),
    'config-field',
    '"attention_bias" is true, wanted is false',
  );
});

test('a sliding window in use is refused; one without effect is not', async () => {
  const used = { use_sliding_window: true };
  await expectError(
    () => read(qwen2Config, used),
    'sliding-window',
    'a sliding window of 16 positions is in use, wanted is attention over all 64',
  );
  expect(read(qwen2Config, { ...used, sliding_window: 64 })).toBeDefined();
  expect(read(qwen2Config, { ...used, max_window_layers: 2 })).toBeDefined();
  const types = { layer_types: ['full_attention', 'sliding_attention'] };
  await expectError(
    () => read(qwen2Config, { ...used, ...types, max_window_layers: 2 }),
    'sliding-window',
    '16',
  );
  expect(read(qwen2Config, { ...used, layer_types: ['full_attention', 'full_attention'] })).toBeDefined();
  await expectError(
    () => read(qwen2Config, { layer_types: ['linear_attention'] }),
    'unknown-layer-type',
    '"linear_attention"',
  );
  await expectError(() => read(mistralConfig, { sliding_window: 16 }), 'sliding-window', '16');
  await expectError(
    () => read(mistralConfig, { sliding_window: undefined, max_position_embeddings: 8192 }),
    'sliding-window',
    'a sliding window of 4096',
  );
  await expectError(
    () => read(mistralConfig, { sliding_window: '16' }),
    'config-field',
    '"sliding_window" is "16"',
  );
  await expectError(() => read(llamaConfig, types), 'sliding-window', 'is in use');
});
