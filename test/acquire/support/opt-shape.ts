import { type StoredType, storedBytes } from '../../../src/base/stored-type.js';
import type { LlamaConfig, OptConfig } from '../../../src/checkpoint/model-config.js';
import type {
  MatrixDescription,
  MatrixRole,
  ModelDescription,
  TableDescription,
  VectorDescription,
} from '../../../src/checkpoint/model-description.js';
import { planWeights } from '../../../src/checkpoint/prepared-layout.js';
import type { PreparedModel, PreparedTensor } from '../../../src/checkpoint/prepared-model.js';

const common = {
  activation: 'relu',
  activationThreshold: 0,
  normEpsilon: 1e-5,
  tied: true,
  bosTokenId: 2,
  eosTokenIds: [2],
} as const;

/** Configuration of an OPT shape, as the published ones: pre-norm, biases, tied head, 2,048 positions. */
export function optConfig(shape: {
  hiddenSize: number;
  ffnSize: number;
  layers: number;
  heads: number;
  vocabSize: number;
  maxPositions?: number;
}): OptConfig {
  return {
    ...common,
    family: 'opt',
    architecture: 'OPTForCausalLM',
    kvHeads: shape.heads,
    headDim: shape.hiddenSize / shape.heads,
    maxPositions: 2048,
    embeddingSize: shape.hiddenSize,
    positionOffset: 2,
    preNorm: true,
    finalNorm: true,
    bias: true,
    affineNorm: true,
    ...shape,
  };
}

/** Configuration of a gated ReLU shape, head not tied. */
export function gatedConfig(shape: {
  hiddenSize: number;
  ffnSize: number;
  layers: number;
  heads: number;
  vocabSize: number;
}): LlamaConfig {
  return {
    ...common,
    tied: false,
    family: 'llama',
    architecture: 'LlamaForCausalLM',
    kvHeads: shape.heads,
    headDim: shape.hiddenSize / shape.heads,
    maxPositions: 2048,
    norm: 'rms',
    gammaPlusOne: false,
    gated: true,
    qkvBias: false,
    outputBias: false,
    ffnBias: false,
    ropeTheta: 10000,
    rotary: shape.hiddenSize / shape.heads,
    ropeScaling: { type: 'default' },
    ...shape,
  };
}

/** Describes a configuration without a checkpoint. */
export function describe(config: OptConfig | LlamaConfig, type: StoredType): ModelDescription {
  const matrices: MatrixDescription[] = [];
  const vectors: VectorDescription[] = [];
  const { hiddenSize: d, ffnSize: f, vocabSize, kvHeads, headDim, heads } = config;
  const vector = (id: string, width: number) => vectors.push({ id, width, offset: 0, sourceTensor: id });
  const matrix = (role: MatrixRole, layer: number | null, inputs: number, outputs: number, bias: boolean) => {
    const id = layer === null ? role : `layers.${layer}.${role}`;
    const byOutput = role === 'up';
    matrices.push({
      id,
      role,
      layer,
      inputs,
      outputs,
      type,
      layout: byOutput ? 'output-major' : 'input-major',
      neuronAxis: byOutput ? 'outputs' : role === 'second' ? 'inputs' : null,
      biasId: bias ? `${id}.bias` : null,
      sourceTensor: role === 'head' && config.tied ? 'embed_tokens' : id,
    });
    if (bias) vector(`${id}.bias`, outputs);
  };
  const opt = config.family === 'opt';
  const tables: TableDescription[] = [
    { id: 'token-embedding', rows: vocabSize, columns: d, type, sourceTensor: 'embed_tokens' },
  ];
  if (config.family === 'opt') {
    const rows = config.maxPositions + config.positionOffset;
    tables.push({ id: 'position-embedding', rows, columns: d, type, sourceTensor: 'embed_positions' });
  }
  const norm = (id: string) => {
    vector(`${id}.gamma`, d);
    if (opt) vector(`${id}.beta`, d);
  };
  for (let layer = 0; layer < config.layers; layer += 1) {
    norm(`layers.${layer}.attention-norm`);
    matrix('query', layer, d, heads * headDim, opt);
    matrix('key', layer, d, kvHeads * headDim, opt);
    matrix('value', layer, d, kvHeads * headDim, opt);
    matrix('output', layer, heads * headDim, d, opt);
    norm(`layers.${layer}.ffn-norm`);
    if (config.family === 'llama' && config.gated) {
      matrix('gate', layer, d, f, false);
      matrix('up', layer, d, f, false);
    } else {
      matrix('first', layer, d, f, opt);
    }
    matrix('second', layer, f, d, opt);
  }
  norm('final-norm');
  matrix('head', null, d, vocabSize, false);
  return { config, matrices, vectors, tables, notes: [] };
}

/** Weights that a checkpoint of this description stores: every tensor once. */
export function storedParameters({ matrices, vectors, tables }: ModelDescription): number {
  const bySource = new Map<string, number>();
  for (const { sourceTensor, inputs, outputs } of matrices) bySource.set(sourceTensor, inputs * outputs);
  for (const { sourceTensor, width } of vectors) bySource.set(sourceTensor, width);
  for (const { sourceTensor, rows, columns } of tables) bySource.set(sourceTensor, rows * columns);
  return [...bySource.values()].reduce((sum, count) => sum + count, 0);
}

/** A prepared model in name only: sizes and places, no file. */
export function emptyPrepared(description: ModelDescription): PreparedModel {
  const plan = planWeights(description);
  const byId = new Map<string, PreparedTensor>(
    plan.tensors.map(({ id, type, shape, byteOffset, byteLength }) => [
      id,
      { id, type, shape, byteOffset, byteLength, sha256: '', finite: true },
    ]),
  );
  return {
    directory: '',
    description,
    manifestDigest: '',
    sourceDigest: '',
    sourceFiles: [],
    weightsFile: { path: 'nowhere', descriptor: -1, byteLength: plan.byteLength },
    tensor: (id) => byId.get(id)!,
    close: async () => {},
  };
}

/** Bytes of all matrices of a role. */
export function roleBytes(description: ModelDescription, ...roles: MatrixRole[]): number {
  return description.matrices
    .filter(({ role }) => roles.includes(role))
    .reduce((sum, { inputs, outputs, type }) => sum + inputs * outputs * storedBytes[type], 0);
}
