import { expect, test } from 'vitest';
import type { JsonValue } from '../../src/base/json.js';
import type { LlamaConfig } from '../../src/checkpoint/model-config.js';
import { readModelConfig } from '../../src/checkpoint/read-config.js';
import { expectError } from './support/errors.js';
import { llamaConfig } from './support/llama-configs.js';

function read(changes: object): Pick<LlamaConfig, 'ropeScaling' | 'ropeTheta' | 'maxPositions'> {
  const merged = JSON.parse(JSON.stringify({ ...llamaConfig, ...changes })) as JsonValue;
  const { ropeScaling, ropeTheta, maxPositions } = readModelConfig(merged, null) as LlamaConfig;
  return { ropeScaling, ropeTheta, maxPositions };
}

const llama3 = {
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 32,
};

const cases = [
  ['default', {}, { type: 'default' }, 64],
  ['linear', { factor: 2.5 }, { type: 'linear', factor: 2.5 }, 160],
  ['dynamic', { factor: 2 }, { type: 'dynamic', factor: 2, originalPositions: 64 }, 128],
  [
    'dynamic',
    { factor: 2, original_max_position_embeddings: 32 },
    { type: 'dynamic', factor: 2, originalPositions: 32 },
    64,
  ],
  [
    'llama3',
    llama3,
    { type: 'llama3', factor: 8, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalPositions: 32 },
    64,
  ],
  [
    'yarn',
    { factor: 4 },
    {
      type: 'yarn',
      factor: 4,
      attentionFactor: null,
      betaFast: 32,
      betaSlow: 1,
      mscale: null,
      mscaleAllDim: null,
      truncate: true,
      originalPositions: 64,
    },
    256,
  ],
  [
    'yarn',
    {
      factor: 4,
      attention_factor: 1.25,
      beta_fast: 16,
      beta_slow: 2,
      mscale: 0.7,
      mscale_all_dim: 0.9,
      truncate: false,
      original_max_position_embeddings: 16,
    },
    {
      type: 'yarn',
      factor: 4,
      attentionFactor: 1.25,
      betaFast: 16,
      betaSlow: 2,
      mscale: 0.7,
      mscaleAllDim: 0.9,
      truncate: false,
      originalPositions: 16,
    },
    64,
  ],
] as const;

test.each(cases)('%s %j is read from every spelling', (type, parameters, scaling, maxPositions) => {
  const wanted = { ropeScaling: scaling, ropeTheta: 5000, maxPositions };
  expect(read({ rope_theta: 5000, rope_scaling: { rope_type: type, ...parameters } })).toEqual(wanted);
  expect(read({ rope_theta: 5000, rope_scaling: { type, ...parameters } })).toEqual(wanted);
  expect(read({ rope_theta: 5000, rope_scaling: { type, rope_type: type, ...parameters } })).toEqual(wanted);
  expect(read({ rope_parameters: { rope_type: type, rope_theta: 5000, ...parameters } })).toEqual(wanted);
  expect(
    read({
      rope_theta: 5000,
      rope_parameters: { rope_type: type, rope_theta: 5000, ...parameters },
      rope_scaling: { type, ...parameters },
    }),
  ).toEqual(wanted);
});

test('without any statement, the default embedding with base 10000', () => {
  const wanted = { ropeScaling: { type: 'default' }, ropeTheta: 10000, maxPositions: 64 };
  expect(read({})).toEqual(wanted);
  expect(read({ rope_scaling: null, rope_parameters: null, rope_theta: null })).toEqual(wanted);
  expect(read({ rope_parameters: { rope_theta: 10000 } })).toEqual(wanted);
});

test('yarn whose original length is the stated one extends it', () => {
  const scaling = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 64 };
  expect(read({ rope_scaling: scaling }).maxPositions).toBe(256);
});

test('a length beyond 2^31, dynamic scaling of two elements, a base of 1 are refused', async () => {
  await expectError(
    () => read({ rope_scaling: { type: 'linear', factor: 1e300 } }),
    'config-contradiction',
    'at most 2147483647 are wanted',
  );
  await expectError(
    () => read({ head_dim: 2, rope_scaling: { type: 'dynamic', factor: 2 } }),
    'config-contradiction',
    'at least 4 rotated elements are wanted',
  );
  await expectError(
    () => read({ rope_theta: 1 }),
    'config-field',
    '"rope_theta" is 1, wanted is a number above 1',
  );
  await expectError(
    () => read({ rope_parameters: { rope_type: 'default', rope_theta: 0.5 } }),
    'config-field',
    '"rope_theta" is 0.5',
  );
});

test('contradictions are refused', async () => {
  await expectError(
    () => read({ rope_theta: 5000, rope_parameters: { rope_type: 'default', rope_theta: 6000 } }),
    'config-contradiction',
    '"rope_theta" gives rope_theta 5000, "rope_parameters" gives 6000',
  );
  await expectError(
    () => read({ rope_scaling: { type: 'linear', factor: 2 }, rope_parameters: { rope_type: 'default' } }),
    'config-contradiction',
    '"rope_parameters" says {"type":"default"}, "rope_scaling" says {"type":"linear","factor":2}',
  );
  await expectError(
    () =>
      read({
        rope_scaling: { type: 'linear', factor: 2 },
        rope_parameters: { rope_type: 'linear', factor: 4 },
      }),
    'config-contradiction',
    '"factor":4',
  );
  await expectError(
    () => read({ rope_scaling: { type: 'linear', rope_type: 'dynamic', factor: 2 } }),
    'config-contradiction',
    '"rope_type" is "dynamic", "type" is "linear"',
  );
  await expectError(
    () => read({ rope_scaling: { rope_type: 'llama3', ...llama3, high_freq_factor: 1 } }),
    'config-contradiction',
    '"high_freq_factor" is 1, a number above "low_freq_factor" (1) is wanted',
  );
});

test.each(['longrope', 'su', 'mrope', 'ntk', '', 'constructor', 'Linear'])(
  'the type "%s" is refused by name',
  async (type) => {
    for (const spelling of ['rope_scaling', 'rope_parameters']) {
      await expectError(
        () => read({ [spelling]: { rope_type: type, factor: 2 } }),
        'unknown-rope-type',
        `Reading "${spelling}" of config.json failed: the type is ${JSON.stringify(type)}`,
      );
    }
  },
);

test.each([
  [{ factor: 2 }, 'config-missing', '"rope_type" is absent'],
  [{ rope_type: 'linear' }, 'config-missing', '"factor" is absent'],
  [{ rope_type: 'dynamic' }, 'config-missing', '"factor" is absent'],
  [{ rope_type: 'yarn' }, 'config-missing', '"factor" is absent'],
  [
    { rope_type: 'llama3', ...llama3, low_freq_factor: undefined },
    'config-missing',
    '"low_freq_factor" is absent',
  ],
  [
    { rope_type: 'llama3', ...llama3, original_max_position_embeddings: undefined },
    'config-missing',
    '"original_max_position_embeddings" is absent',
  ],
  [{ rope_type: 'linear', factor: '2' }, 'config-field', '"factor" is "2"'],
  [{ rope_type: 'linear', factor: 0 }, 'config-field', '"factor" is 0'],
  [{ rope_type: 'linear', factor: 0.5 }, 'config-field', '"factor" is 0.5'],
  [{ rope_type: 3 }, 'config-field', '"rope_type" is 3'],
  [{ rope_type: 'yarn', factor: 2, truncate: 1 }, 'config-field', '"truncate" is 1'],
  [{ full_attention: { rope_type: 'default' } }, 'config-field', '"full_attention"'],
])('parameters %j are refused', async (parameters, code, message) => {
  await expectError(() => read({ rope_scaling: parameters }), code, message);
});

test('scaling that is no object is refused', async () => {
  await expectError(
    () => read({ rope_scaling: 2 }),
    'config-field',
    '"rope_scaling" of config.json failed: it is 2',
  );
  await expectError(() => read({ rope_scaling: [] }), 'config-field', 'it is []');
});
