import {
  isSparse,
  type LlamaConfig,
  type ModelConfig,
  type OptConfig,
} from '../../src/checkpoint/model-config.js';
import type {
  MatrixDescription,
  MatrixRole,
  ModelDescription,
  TableDescription,
  VectorDescription,
} from '../../src/checkpoint/model-description.js';
import { SeededNumbers } from './random.js';

/** Weights by id: matrices `[outputs, inputs]` as a checkpoint has them, vectors, tables `[rows, columns]`. */
export interface TinyWeights {
  readonly description: ModelDescription;
  readonly values: ReadonlyMap<string, Float32Array>;
}

const common = {
  architecture: 'Test',
  vocabSize: 61,
  hiddenSize: 40,
  layers: 2,
  heads: 4,
  kvHeads: 4,
  headDim: 10,
  ffnSize: 140,
  activation: 'relu',
  activationThreshold: 0,
  maxPositions: 48,
  normEpsilon: 1e-5,
  tied: true,
  bosTokenId: null,
  eosTokenIds: [],
} as const;

export function optConfig(changes: Partial<OptConfig> = {}): OptConfig {
  return {
    ...common,
    family: 'opt',
    embeddingSize: 40,
    positionOffset: 2,
    preNorm: true,
    finalNorm: true,
    bias: true,
    affineNorm: true,
    ...changes,
  };
}

export function llamaConfig(changes: Partial<LlamaConfig> = {}): LlamaConfig {
  return {
    ...common,
    family: 'llama',
    kvHeads: 2,
    headDim: 12,
    norm: 'rms',
    gammaPlusOne: false,
    gated: true,
    qkvBias: false,
    outputBias: false,
    ffnBias: false,
    ropeTheta: 10000,
    rotary: 12,
    ropeScaling: { type: 'default' },
    ...changes,
  };
}

/** A description and seeded weights for a configuration, built from the interface's text alone. */
export function tinyWeights(config: ModelConfig, seed: number): TinyWeights {
  const numbers = new SeededNumbers(seed);
  const values = new Map<string, Float32Array>();
  const matrices: MatrixDescription[] = [];
  const vectors: VectorDescription[] = [];
  const tables: TableDescription[] = [];

  const vector = (id: string, width: number, mean: number, scale: number): void => {
    vectors.push({ id, width, offset: 0, sourceTensor: id });
    values.set(id, numbers.floats(width, scale, mean));
  };
  const matrix = (
    role: MatrixRole,
    layer: number | null,
    inputs: number,
    outputs: number,
    bias: boolean,
  ): void => {
    const id = layer === null ? role : `layers.${layer}.${role}`;
    const sparse = isSparse(config.activation);
    const neuronOutputs = role === 'up' && sparse;
    matrices.push({
      id,
      role,
      layer,
      inputs,
      outputs,
      type: 'f32',
      layout: neuronOutputs ? 'output-major' : 'input-major',
      neuronAxis: neuronOutputs ? 'outputs' : role === 'second' && sparse ? 'inputs' : null,
      biasId: bias ? `${id}.bias` : null,
      sourceTensor: id,
    });
    values.set(id, numbers.floats(inputs * outputs, 1 / Math.sqrt(inputs)));
    if (bias) vector(`${id}.bias`, outputs, 0, 0.1);
  };
  const table = (id: TableDescription['id'], rows: number, columns: number): void => {
    tables.push({ id, rows, columns, type: 'f32', sourceTensor: id });
    values.set(id, numbers.floats(rows * columns, 1));
  };
  const norm = (id: string, gamma: boolean, beta: boolean): void => {
    if (gamma) vector(`${id}.gamma`, config.hiddenSize, 1, 0.2);
    if (beta) vector(`${id}.beta`, config.hiddenSize, 0, 0.2);
  };

  const { hiddenSize, ffnSize, heads, kvHeads, headDim, vocabSize } = config;
  const opt = config.family === 'opt' ? config : null;
  const llama = config.family === 'llama' ? config : null;
  const embeddingSize = opt?.embeddingSize ?? hiddenSize;
  const gamma = opt?.affineNorm ?? true;
  const beta = opt?.affineNorm ?? llama?.norm === 'layer';
  const qkvBias = opt?.bias ?? llama!.qkvBias;
  const ffnBias = opt?.bias ?? llama!.ffnBias;

  table('token-embedding', vocabSize, embeddingSize);
  if (opt !== null) table('position-embedding', config.maxPositions + opt.positionOffset, hiddenSize);
  if (embeddingSize !== hiddenSize) matrix('project-in', null, embeddingSize, hiddenSize, false);
  for (let layer = 0; layer < config.layers; layer++) {
    norm(`layers.${layer}.attention-norm`, gamma, beta);
    matrix('query', layer, hiddenSize, heads * headDim, qkvBias);
    matrix('key', layer, hiddenSize, kvHeads * headDim, qkvBias);
    matrix('value', layer, hiddenSize, kvHeads * headDim, qkvBias);
    matrix('output', layer, heads * headDim, hiddenSize, opt?.bias ?? llama!.outputBias);
    norm(`layers.${layer}.ffn-norm`, gamma, beta);
    matrix(llama?.gated ? 'gate' : 'first', layer, hiddenSize, ffnSize, ffnBias);
    if (llama?.gated) matrix('up', layer, hiddenSize, ffnSize, ffnBias);
    matrix('second', layer, ffnSize, hiddenSize, ffnBias);
  }
  if (opt?.finalNorm ?? true) norm('final-norm', gamma, beta);
  if (embeddingSize !== hiddenSize) matrix('project-out', null, hiddenSize, embeddingSize, false);
  matrix('head', null, embeddingSize, vocabSize, false);
  if (config.tied) values.set('head', values.get('token-embedding')!);
  return { description: { config, matrices, vectors, tables, notes: [] }, values };
}
