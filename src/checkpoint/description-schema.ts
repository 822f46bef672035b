import { z } from 'zod';
import { activationKinds, type ModelConfig } from './model-config.js';
import type { ModelDescription } from './model-description.js';

const count = z.int().nonnegative();
const size = z.int().positive();
const finite = z.number();
const storedType = z.enum(['f32', 'f16', 'bf16']);

const common = {
  architecture: z.string(),
  vocabSize: size,
  hiddenSize: size,
  layers: count,
  heads: size,
  kvHeads: size,
  headDim: size,
  ffnSize: size,
  activation: z.enum(activationKinds),
  activationThreshold: finite,
  maxPositions: size,
  normEpsilon: finite,
  tied: z.boolean(),
  bosTokenId: count.nullable(),
  eosTokenIds: z.array(count).readonly(),
};

const optConfig = z.strictObject({
  family: z.literal('opt'),
  ...common,
  embeddingSize: size,
  positionOffset: count,
  preNorm: z.boolean(),
  finalNorm: z.boolean(),
  bias: z.boolean(),
  affineNorm: z.boolean(),
});

const ropeScaling = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('default') }),
  z.strictObject({ type: z.literal('linear'), factor: finite }),
  z.strictObject({ type: z.literal('dynamic'), factor: finite, originalPositions: size }),
  z.strictObject({
    type: z.literal('llama3'),
    factor: finite,
    lowFrequencyFactor: finite,
    highFrequencyFactor: finite,
    originalPositions: size,
  }),
  z.strictObject({
    type: z.literal('yarn'),
    factor: finite,
    attentionFactor: finite.nullable(),
    betaFast: finite,
    betaSlow: finite,
    mscale: finite.nullable(),
    mscaleAllDim: finite.nullable(),
    truncate: z.boolean(),
    originalPositions: size,
  }),
]);

const llamaConfig = z.strictObject({
  family: z.literal('llama'),
  ...common,
  norm: z.enum(['rms', 'layer']),
  gammaPlusOne: z.boolean(),
  gated: z.boolean(),
  qkvBias: z.boolean(),
  outputBias: z.boolean(),
  ffnBias: z.boolean(),
  ropeTheta: finite,
  rotary: size,
  ropeScaling,
});

const config: z.ZodType<ModelConfig> = z.discriminatedUnion('family', [optConfig, llamaConfig]);

const matrix = z.strictObject({
  id: z.string(),
  role: z.enum([
    'project-in',
    'query',
    'key',
    'value',
    'output',
    'first',
    'gate',
    'up',
    'second',
    'project-out',
    'head',
  ]),
  layer: count.nullable(),
  inputs: size,
  outputs: size,
  type: storedType,
  layout: z.enum(['input-major', 'output-major']),
  neuronAxis: z.enum(['inputs', 'outputs']).nullable(),
  biasId: z.string().nullable(),
  sourceTensor: z.string(),
});

const vector = z.strictObject({
  id: z.string(),
  width: size,
  offset: z.union([z.literal(0), z.literal(1)]),
  sourceTensor: z.string(),
});

const table = z.strictObject({
  id: z.enum(['token-embedding', 'position-embedding']),
  rows: size,
  columns: size,
  type: storedType,
  sourceTensor: z.string(),
});

/** A `ModelDescription` in JSON; refuses unknown fields, so that a newer description is never half understood. */
export const descriptionSchema: z.ZodType<ModelDescription> = z.strictObject({
  config,
  matrices: z.array(matrix).readonly(),
  vectors: z.array(vector).readonly(),
  tables: z.array(table).readonly(),
  notes: z.array(z.string()).readonly(),
});
