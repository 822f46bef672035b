import { expect, test } from 'vitest';
import type { JsonValue } from '../../src/base/json.js';
import { describeModel } from '../../src/checkpoint/describe-model.js';
import type { ModelDescription } from '../../src/checkpoint/model-description.js';
import { readModelConfig } from '../../src/checkpoint/read-config.js';
import type { StoredTensor } from '../../src/checkpoint/stored-tensor.js';
import { expectError } from './support/errors.js';
import { arceeConfig, llamaConfig, nemotronConfig, qwen2Config } from './support/llama-configs.js';
import { tinyOptConfig, tinyOptShapes } from './support/tiny-opt.js';

type Shapes = Readonly<Record<string, readonly number[] | null>>;

/** Describes a model of these shapes; `heads` gives the first byte of each tensor that is compared. */
function describe(
  config: object,
  shapes: Shapes,
  first: Readonly<Record<string, number>> = {},
): Promise<ModelDescription> {
  const tensors = new Map<string, StoredTensor>();
  let at = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    if (shape === null) continue;
    const byteLength = 2 * shape.reduce((product, size) => product * size, 1);
    tensors.set(name, {
      name,
      dtype: 'F16',
      type: 'f16',
      shape,
      file: 'f',
      byteOffset: at,
      byteLength,
      unreadable: null,
    });
    at += byteLength;
  }
  const modelConfig = readModelConfig(JSON.parse(JSON.stringify(config)) as JsonValue, null);
  return describeModel(modelConfig, tensors, async (tensor, byteOffset, target) => {
    target.fill(0);
    if (byteOffset === 0) target[0] = first[tensor.name] ?? 0;
  });
}

const prefixed = (shapes: Shapes, prefix: string): Shapes =>
  Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [prefix + name, shape]));

const opt = prefixed(tinyOptShapes, 'model.decoder.');

function llamaShapes(
  layers: number,
  hidden: number,
  query: number,
  kv: number,
  ffn: number,
  mlp: readonly string[],
): Shapes {
  const shapes: Record<string, readonly number[]> = {
    'lm_head.weight': [10, hidden],
    'model.embed_tokens.weight': [10, hidden],
    'model.norm.weight': [hidden],
  };
  for (let layer = 0; layer < layers; layer++) {
    const at = `model.layers.${layer}`;
    shapes[`${at}.input_layernorm.weight`] = [hidden];
    shapes[`${at}.post_attention_layernorm.weight`] = [hidden];
    shapes[`${at}.self_attn.q_proj.weight`] = [query, hidden];
    shapes[`${at}.self_attn.k_proj.weight`] = [kv, hidden];
    shapes[`${at}.self_attn.v_proj.weight`] = [kv, hidden];
    shapes[`${at}.self_attn.o_proj.weight`] = [hidden, query];
    for (const name of mlp)
      shapes[`${at}.mlp.${name}.weight`] = name === 'down_proj' ? [hidden, ffn] : [ffn, hidden];
  }
  return shapes;
}

const gatedMlp = ['gate_proj', 'up_proj', 'down_proj'];
const llama = llamaShapes(2, 8, 24, 12, 12, gatedMlp);

const summary = (description: ModelDescription) =>
  description.matrices.map(({ id, inputs, outputs, layout, neuronAxis, sourceTensor }) =>
    [id, inputs, outputs, layout, neuronAxis, sourceTensor].join(' '),
  );

test('OPT: matrices, vectors and tables in the order of use', async () => {
  const description = await describe(tinyOptConfig, opt);
  const at = 'model.decoder.layers.0';
  expect(summary(description)).toEqual([
    `layers.0.query 4 4 input-major  ${at}.self_attn.q_proj.weight`,
    `layers.0.key 4 4 input-major  ${at}.self_attn.k_proj.weight`,
    `layers.0.value 4 4 input-major  ${at}.self_attn.v_proj.weight`,
    `layers.0.output 4 4 input-major  ${at}.self_attn.out_proj.weight`,
    `layers.0.first 4 6 input-major  ${at}.fc1.weight`,
    `layers.0.second 6 4 input-major inputs ${at}.fc2.weight`,
    'head 4 11 input-major  model.decoder.embed_tokens.weight',
  ]);
  expect(description.matrices.map(({ biasId }) => biasId)).toEqual([
    ...['query', 'key', 'value', 'output', 'first', 'second'].map((role) => `layers.0.${role}.bias`),
    null,
  ]);
  expect(
    description.vectors.map(({ id, width, offset, sourceTensor }) => [id, width, offset, sourceTensor]),
  ).toEqual([
    ['layers.0.attention-norm.gamma', 4, 0, `${at}.self_attn_layer_norm.weight`],
    ['layers.0.attention-norm.beta', 4, 0, `${at}.self_attn_layer_norm.bias`],
    ['layers.0.query.bias', 4, 0, `${at}.self_attn.q_proj.bias`],
    ['layers.0.key.bias', 4, 0, `${at}.self_attn.k_proj.bias`],
    ['layers.0.value.bias', 4, 0, `${at}.self_attn.v_proj.bias`],
    ['layers.0.output.bias', 4, 0, `${at}.self_attn.out_proj.bias`],
    ['layers.0.ffn-norm.gamma', 4, 0, `${at}.final_layer_norm.weight`],
    ['layers.0.ffn-norm.beta', 4, 0, `${at}.final_layer_norm.bias`],
    ['layers.0.first.bias', 6, 0, `${at}.fc1.bias`],
    ['layers.0.second.bias', 4, 0, `${at}.fc2.bias`],
    ['final-norm.gamma', 4, 0, 'model.decoder.final_layer_norm.weight'],
    ['final-norm.beta', 4, 0, 'model.decoder.final_layer_norm.bias'],
  ]);
  expect(description.tables).toEqual([
    {
      id: 'token-embedding',
      rows: 11,
      columns: 4,
      type: 'f16',
      sourceTensor: 'model.decoder.embed_tokens.weight',
    },
    {
      id: 'position-embedding',
      rows: 7,
      columns: 4,
      type: 'f16',
      sourceTensor: 'model.decoder.embed_positions.weight',
    },
  ]);
  expect(description.notes).toEqual([]);
});

test.each(['model.decoder.', 'decoder.', ''])('OPT keys behind "%s" are found', async (prefix) => {
  const description = await describe(tinyOptConfig, prefixed(tinyOptShapes, prefix));
  expect(description.tables[0]!.sourceTensor).toBe(`${prefix}embed_tokens.weight`);
  expect(description.notes).toEqual([]);
});

test('OPT: the final norm by its old name, and the absence of one', async () => {
  const old = {
    ...opt,
    'model.decoder.final_layer_norm.weight': null,
    'model.decoder.final_layer_norm.bias': null,
    'model.decoder.layer_norm.weight': [4],
    'model.decoder.layer_norm.bias': [4],
  };
  const renamed = await describe(tinyOptConfig, old);
  expect(renamed.vectors.at(-1)!.sourceTensor).toBe('model.decoder.layer_norm.bias');
  const both = { ...opt, 'model.decoder.layer_norm.weight': [4] };
  await expectError(
    () => describe(tinyOptConfig, both),
    'tensor-ambiguous',
    '"model.decoder.final_layer_norm.weight" and "model.decoder.layer_norm.weight"',
  );
  const without = await describe({ ...tinyOptConfig, do_layer_norm_before: false }, opt);
  expect(without.vectors.some(({ id }) => id.startsWith('final-norm'))).toBe(false);
  expect(without.notes).toEqual([
    'ignored 2 tensors without a place in this configuration: "model.decoder.final_layer_norm.bias", "model.decoder.final_layer_norm.weight"',
  ]);
});

test('OPT: projections around the layers', async () => {
  const shapes = {
    ...opt,
    'model.decoder.embed_tokens.weight': [11, 3],
    'model.decoder.project_in.weight': [4, 3],
    'model.decoder.project_out.weight': [3, 4],
  };
  const description = await describe({ ...tinyOptConfig, word_embed_proj_dim: 3 }, shapes);
  const lines = summary(description);
  expect(lines[0]).toBe('project-in 3 4 input-major  model.decoder.project_in.weight');
  expect(lines.slice(-2)).toEqual([
    'project-out 4 3 input-major  model.decoder.project_out.weight',
    'head 3 11 input-major  model.decoder.embed_tokens.weight',
  ]);
});

test('OPT without biases and without affine norms has no vectors', async () => {
  const shapes = Object.fromEntries(
    Object.entries(opt).filter(([name]) => !name.includes('norm') && !name.endsWith('bias')),
  );
  const config = { ...tinyOptConfig, enable_bias: false, layer_norm_elementwise_affine: false };
  const description = await describe(config, shapes);
  expect(description.vectors).toEqual([]);
  expect(description.matrices.every(({ biasId }) => biasId === null)).toBe(true);
});

test('Llama: gate, up and down; up is neuron-major where the activation gives zeros', async () => {
  const description = await describe(llamaConfig, llama);
  const at = 'model.layers.1';
  expect(summary(description).slice(7)).toEqual([
    `layers.1.query 8 24 input-major  ${at}.self_attn.q_proj.weight`,
    `layers.1.key 8 12 input-major  ${at}.self_attn.k_proj.weight`,
    `layers.1.value 8 12 input-major  ${at}.self_attn.v_proj.weight`,
    `layers.1.output 24 8 input-major  ${at}.self_attn.o_proj.weight`,
    `layers.1.gate 8 12 input-major  ${at}.mlp.gate_proj.weight`,
    `layers.1.up 8 12 output-major outputs ${at}.mlp.up_proj.weight`,
    `layers.1.second 12 8 input-major inputs ${at}.mlp.down_proj.weight`,
    'head 8 10 input-major  lm_head.weight',
  ]);
  expect(description.vectors.map(({ id }) => id)).toEqual([
    'layers.0.attention-norm.gamma',
    'layers.0.ffn-norm.gamma',
    'layers.1.attention-norm.gamma',
    'layers.1.ffn-norm.gamma',
    'final-norm.gamma',
  ]);
  const dense = await describe({ ...llamaConfig, hidden_act: 'silu' }, llama);
  expect(dense.matrices.find(({ id }) => id === 'layers.0.up')).toMatchObject({
    layout: 'input-major',
    neuronAxis: null,
  });
  expect(dense.notes).toEqual(['not activation-sparse: packets would move everything']);
  const fat = await describe({ ...llamaConfig, hidden_act: 'fatrelu', hidden_act_param: 0.1 }, llama);
  expect(fat.matrices.find(({ id }) => id === 'layers.0.up')).toMatchObject({
    layout: 'output-major',
    neuronAxis: 'outputs',
  });
  expect(fat.config).toMatchObject({ activation: 'fatrelu', activationThreshold: 0.1 });
});

test('Llama keys without "model." are found, old rotary buffers passed over', async () => {
  const bare = Object.fromEntries(
    Object.entries(llama).map(([name, shape]) => [name.replace(/^model\./, ''), shape]),
  );
  const description = await describe(llamaConfig, { ...bare, 'layers.0.self_attn.rotary_emb.inv_freq': [3] });
  expect(description.tables[0]!.sourceTensor).toBe('embed_tokens.weight');
  expect(description.notes).toEqual([]);
});

test('Qwen2: biases of query, key and value', async () => {
  const shapes: Record<string, readonly number[] | null> = { ...llamaShapes(2, 8, 8, 4, 12, gatedMlp) };
  for (const layer of [0, 1]) {
    shapes[`model.layers.${layer}.self_attn.q_proj.bias`] = [8];
    shapes[`model.layers.${layer}.self_attn.k_proj.bias`] = [4];
    shapes[`model.layers.${layer}.self_attn.v_proj.bias`] = [4];
  }
  const description = await describe(qwen2Config, shapes);
  expect(description.matrices.filter(({ biasId }) => biasId !== null).map(({ role }) => role)).toEqual([
    'query',
    'key',
    'value',
    'query',
    'key',
    'value',
  ]);
  shapes['model.layers.1.self_attn.k_proj.bias'] = null;
  await expectError(
    () => describe(qwen2Config, shapes),
    'tensor-missing',
    '"model.layers.1.self_attn.k_proj.bias" is absent, wanted with shape [4]',
  );
});

test('Nemotron: first and second, gamma stored one less, with beta', async () => {
  const shapes: Record<string, readonly number[] | null> = {
    ...llamaShapes(1, 8, 8, 4, 12, ['up_proj', 'down_proj']),
  };
  for (const norm of ['layers.0.input_layernorm', 'layers.0.post_attention_layernorm', 'norm'])
    shapes[`model.${norm}.bias`] = [8];
  const description = await describe(nemotronConfig, shapes);
  expect(summary(description).slice(4, 6)).toEqual([
    'layers.0.first 8 12 input-major  model.layers.0.mlp.up_proj.weight',
    'layers.0.second 12 8 input-major inputs model.layers.0.mlp.down_proj.weight',
  ]);
  expect(description.vectors.map(({ id, offset }) => [id, offset])).toEqual([
    ['layers.0.attention-norm.gamma', 1],
    ['layers.0.attention-norm.beta', 0],
    ['layers.0.ffn-norm.gamma', 1],
    ['layers.0.ffn-norm.beta', 0],
    ['final-norm.gamma', 1],
    ['final-norm.beta', 0],
  ]);
  expect(description.notes).toEqual([]);
});

test('Arcee: first and second, RMS norms', async () => {
  const description = await describe(arceeConfig, llamaShapes(1, 8, 8, 8, 12, ['up_proj', 'down_proj']));
  expect(description.matrices.map(({ role }) => role)).toEqual([
    'query',
    'key',
    'value',
    'output',
    'first',
    'second',
    'head',
  ]);
  expect(description.vectors.map(({ id, offset }) => [id, offset])).toEqual([
    ['layers.0.attention-norm.gamma', 0],
    ['layers.0.ffn-norm.gamma', 0],
    ['final-norm.gamma', 0],
  ]);
});

test('a tied head: absent, equal, or different from the token table', async () => {
  const tied = { ...llamaConfig, tie_word_embeddings: true };
  const head = (description: ModelDescription) => description.matrices.at(-1)!.sourceTensor;
  const absent = await describe(tied, { ...llama, 'lm_head.weight': null });
  expect([head(absent), absent.notes]).toEqual(['model.embed_tokens.weight', []]);
  const equal = await describe(tied, llama, { 'lm_head.weight': 7, 'model.embed_tokens.weight': 7 });
  expect([head(equal), equal.notes]).toEqual(['model.embed_tokens.weight', []]);
  const different = await describe(tied, llama, { 'lm_head.weight': 8, 'model.embed_tokens.weight': 7 });
  const note =
    '"lm_head.weight" is stored and differs from the token table, but the configuration ties them: the token table is used';
  expect([head(different), different.notes]).toEqual(['model.embed_tokens.weight', [note]]);
  const misshapen = await describe(tied, { ...llama, 'lm_head.weight': [3, 3] });
  expect([head(misshapen), misshapen.notes]).toEqual(['model.embed_tokens.weight', [note]]);
});

test('an untied head that is absent is named', async () => {
  await expectError(
    () => describe(llamaConfig, { ...llama, 'lm_head.weight': null }),
    'tensor-missing',
    '"lm_head.weight" is absent, wanted with shape [10, 8]',
  );
  await expectError(
    () => describe({ ...tinyOptConfig, tie_word_embeddings: false }, opt),
    'tensor-missing',
    '"lm_head.weight" is absent',
  );
});

test('every tensor that is missing or misshapen is named with both shapes', async () => {
  const cases: readonly [object, Shapes][] = [
    [tinyOptConfig, opt],
    [llamaConfig, llama],
  ];
  for (const [config, shapes] of cases) {
    for (const [name, shape] of Object.entries(shapes)) {
      await expectError(
        () => describe(config, { ...shapes, [name]: null }),
        'tensor-missing',
        `"${name}" is absent, wanted with shape [${shape!.join(', ')}]`,
      );
      const wrong = [...shape!.slice(0, -1), shape!.at(-1)! + 1];
      await expectError(
        () => describe(config, { ...shapes, [name]: wrong }),
        'tensor-shape',
        `tensor "${name}" of "f" failed: its shape is [${wrong.join(', ')}], the configuration wants [${shape!.join(', ')}]`,
      );
      await expectError(
        () => describe(config, { ...shapes, [name]: [...shape!, 1] }),
        'tensor-shape',
        `"${name}"`,
      );
    }
  }
});

test('a configuration of more layers than the file has names the first missing tensor', async () => {
  await expectError(
    () => describe({ ...llamaConfig, num_hidden_layers: 2 ** 31 - 1 }, llama),
    'tensor-missing',
    '"model.layers.2.input_layernorm.weight"',
  );
  const fewer = await describe({ ...llamaConfig, num_hidden_layers: 1 }, llama);
  expect(fewer.notes[0]).toMatch(/^ignored 9 tensors .*"model\.layers\.1\.input_layernorm\.weight".*, …$/);
});
