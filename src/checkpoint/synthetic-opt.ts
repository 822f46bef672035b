import { cos64, sin64 } from '../base/binary64.js';
import { DefectError, UsageError } from '../base/errors.js';
import { normalQuantile } from '../base/normal.js';
import type { StoredType } from '../base/stored-type.js';
import { mean, type Popularity, shuffled, squareAbove, zipfThresholds } from './synthetic-popularity.js';
import { computedFill, type Fill, mixedWord, normalAt, randomFill, tensorKey } from './synthetic-weights.js';

/** Sizes of an OPT model with pre-norm layers, biases and a tied head. */
export interface SyntheticShape {
  readonly layers: number;
  readonly hidden: number;
  readonly ffn: number;
  readonly heads: number;
  readonly vocabulary: number;
  readonly positions: number;
}

export const syntheticShapes: Readonly<Record<string, SyntheticShape>> = {
  'opt-125m': { layers: 12, hidden: 768, ffn: 3072, heads: 12, vocabulary: 50272, positions: 2048 },
  'opt-1.3b': { layers: 24, hidden: 2048, ffn: 8192, heads: 32, vocabulary: 50272, positions: 2048 },
  'opt-2.7b': { layers: 32, hidden: 2560, ffn: 10240, heads: 32, vocabulary: 50272, positions: 2048 },
};

export interface SyntheticOptions {
  readonly shape: SyntheticShape;
  /** Share of FFN neurons that a token activates, between 0.001 and 0.5. */
  readonly active: number;
  readonly seed: number;
  readonly type: StoredType;
  /** How likely neurons are to be active; `normal` where nothing is said. */
  readonly popularity?: Popularity;
  /**
   * Share of a normalised layer input that depends on the position alone, and so is common to neighbouring tokens: .42 where
   * nothing is said.
   */
  readonly positionShare?: number;
}

export interface SyntheticTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly fill: Fill;
}

/**
 * Deviation of token embeddings. The stream is then about 0.13 an element, far above the square root of the norms'
 * epsilon (0.003), and its sums stay far inside F16.
 */
const tokenDeviation = 0.1;
/** Share of a normalised layer input that depends on the position alone, and so is common to neighbouring tokens. */
const defaultPositionShare = 0.42;
/** Turns of that share: positions per turn. Neighbours agree, positions hundreds apart hardly. */
const periods = [512, 870, 1485, 2560] as const;
/** Variance, over neurons, of their thresholds: some neurons are active for most tokens, as in trained models. */
const thresholdVariance = 0.5;
/** Variance that all layers together add to the residual stream, against that of the embeddings. */
const layerShare = 0.3;
const logitDeviation = 3;

/**
 * Tensors of a synthetic checkpoint, in file order.
 *
 * A normalised layer input h has norm sqrt(hidden), whatever the tokens; for rows w of the first projection with
 * independent elements of variance 1/hidden, w.h is therefore standard normal over the neurons. A neuron's bias is
 * `-(t + sqrt(v) g)` with g standard normal, v `thresholdVariance` and `t = sqrt(1 + v) quantile(1 - active)`, which
 * makes the expected share of positive pre-activations `active` for every token in every layer.
 * Two tokens share neurons through g and through the position's part of h. At 0.034 active, simulated for 20,000
 * neurons: 27 % of neurons are active for some of 32 neighbouring tokens and 68 % for some of 512; trained OPT models
 * showed 26 % and 69 %, independent rows would give 67 % and 100 %.
 *
 * With popularity `zipf` the threshold of a neuron of rank r makes it active with probability c / r^exponent, at most .98, and
 * ranks are dealt out anew in every layer. Simulated for 10,240 neurons at .034 active, exponent 1 and a position's share of
 * .55: neighbouring tokens share .48 of their neurons, and .20 of all are active for some of 32 tokens.
 *
 * The position's part lies in the first half of the elements, which the final norm damps; it gives the others random
 * signs, without which a tied head would always choose the token that was just read.
 * Throws `UsageError` `synthetic-shape`, `synthetic-active`, `synthetic-seed`.
 */
export function syntheticTensors(options: SyntheticOptions): SyntheticTensor[] {
  checkOptions(options);
  const { shape, type, seed, active, popularity = { kind: 'normal' } } = options;
  const positionShare = options.positionShare ?? defaultPositionShare;
  const { layers, hidden, ffn, vocabulary, positions } = shape;
  const tensors: SyntheticTensor[] = [];
  const nextKey = () => tensorKey(seed, tensors.length);
  const add = (name: string, sizes: readonly number[], fill: Fill) => {
    tensors.push({ name: `model.decoder.${name}`, shape: sizes, fill });
  };
  const matrix = (name: string, rows: number, columns: number, deviation: number) =>
    add(name, [rows, columns], randomFill(deviation, type, nextKey()));
  const vector = (name: string, width: number, value: (index: number) => number) =>
    add(name, [width], computedFill(value, type));
  const norm = (name: string) => {
    vector(`${name}.weight`, hidden, () => 1);
    vector(`${name}.bias`, hidden, () => 0);
  };
  const bias = (name: string, deviation: number) => {
    const key = nextKey();
    vector(name, hidden, (index) => deviation * normalAt(index, key));
  };

  const unit = 1 / Math.sqrt(hidden);
  const stream = (tokenDeviation * tokenDeviation) / (1 - positionShare);
  const branch = (layerShare * stream) / (2 * layers);
  const quantile = normalQuantile(1 - active);
  const spread = Math.sqrt(1 + thresholdVariance);
  const ranked = popularity.kind === 'zipf' ? zipfThresholds(ffn, active, popularity.exponent) : null;
  const squares =
    ranked === null
      ? ffn * (1 + thresholdVariance) * squareAbove(quantile)
      : ffn * mean(ranked.map(squareAbove));
  const secondDeviation = Math.sqrt(branch / squares);

  matrix('embed_tokens.weight', vocabulary, hidden, tokenDeviation);
  add(
    'embed_positions.weight',
    [positions + 2, hidden],
    positionFill(options, Math.sqrt(stream * positionShare)),
  );
  for (let layer = 0; layer < layers; layer++) {
    const at = `layers.${layer}`;
    for (const projection of ['q_proj', 'k_proj', 'v_proj']) {
      matrix(`${at}.self_attn.${projection}.weight`, hidden, hidden, unit);
      bias(`${at}.self_attn.${projection}.bias`, 0.02);
    }
    // Weighted means of values keep about half of a value's variance.
    matrix(`${at}.self_attn.out_proj.weight`, hidden, hidden, unit * Math.sqrt(2 * branch));
    bias(`${at}.self_attn.out_proj.bias`, 0.1 * Math.sqrt(branch));
    norm(`${at}.self_attn_layer_norm`);
    matrix(`${at}.fc1.weight`, ffn, hidden, unit);
    const key = nextKey();
    const order = ranked === null ? null : shuffled(ffn, key);
    vector(`${at}.fc1.bias`, ffn, (index) =>
      order === null
        ? -(spread * quantile + Math.sqrt(thresholdVariance) * normalAt(index, key))
        : -ranked![order[index]!]!,
    );
    matrix(`${at}.fc2.weight`, hidden, ffn, secondDeviation);
    bias(`${at}.fc2.bias`, 0.1 * Math.sqrt(branch));
    norm(`${at}.final_layer_norm`);
  }
  const signs = nextKey();
  const half = Math.floor(hidden / 2);
  const scale = logitDeviation / (tokenDeviation * Math.sqrt(hidden - half));
  vector('final_layer_norm.weight', hidden, (index) =>
    index < half ? scale / 8 : mixedWord(index, signs) & 1 ? scale : -scale,
  );
  vector('final_layer_norm.bias', hidden, () => 0);
  return tensors;
}

/** Rows of the position table: sines and cosines of slow turns along fixed random directions of the first half. */
function positionFill({ shape, seed, type }: SyntheticOptions, deviation: number): Fill {
  const { hidden } = shape;
  const half = Math.floor(hidden / 2);
  const key = tensorKey(seed, 0x7fffffff);
  const directions = Float64Array.from({ length: 2 * periods.length * half }, (_, index) =>
    normalAt(index, key),
  );
  // Each of the turns has variance 1 over the elements that it uses, half of all.
  const scale = deviation * Math.sqrt(hidden / half / periods.length);
  const row = new Float64Array(hidden);
  let rowPosition = -1;
  const prepareRow = (position: number) => {
    rowPosition = position;
    row.fill(0);
    periods.forEach((period, turn) => {
      const angle = (2 * Math.PI * position) / period;
      const cosine = scale * cos64(angle);
      const sine = scale * sin64(angle);
      const base = 2 * turn * half;
      for (let element = 0; element < half; element++) {
        row[element]! += cosine * directions[base + element]! + sine * directions[base + half + element]!;
      }
    });
  };
  return computedFill((index) => {
    const position = Math.floor(index / hidden);
    if (position !== rowPosition) prepareRow(position);
    return row[index % hidden]!;
  }, type);
}

/** config.json, as transformers writes it for OPT. */
export function syntheticConfig({ shape, type }: SyntheticOptions): Record<string, unknown> {
  const dtype = { f32: 'float32', f16: 'float16', bf16: 'bfloat16' }[type];
  return {
    _remove_final_layer_norm: false,
    activation_function: 'relu',
    architectures: ['OPTForCausalLM'],
    bos_token_id: 2,
    do_layer_norm_before: true,
    enable_bias: true,
    eos_token_id: 2,
    ffn_dim: shape.ffn,
    hidden_size: shape.hidden,
    layer_norm_elementwise_affine: true,
    max_position_embeddings: shape.positions,
    model_type: 'opt',
    num_attention_heads: shape.heads,
    num_hidden_layers: shape.layers,
    pad_token_id: 1,
    tie_word_embeddings: true,
    torch_dtype: dtype,
    vocab_size: shape.vocabulary,
    word_embed_proj_dim: shape.hidden,
  };
}

function checkOptions({ shape, active, seed, type, popularity, positionShare }: SyntheticOptions): void {
  for (const [name, value] of Object.entries(shape)) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new UsageError(
        'synthetic-shape',
        `Cannot make a checkpoint with ${value} ${name}: a whole number above 0 is wanted`,
        { [name]: value },
      );
    }
  }
  if (shape.hidden % shape.heads !== 0 || shape.hidden < 2) {
    throw new UsageError(
      'synthetic-shape',
      `Cannot make a checkpoint of hidden size ${shape.hidden} with ${shape.heads} heads: an equal share of at least one element a head is wanted, and two elements in all`,
      { hidden: shape.hidden, heads: shape.heads },
    );
  }
  if (!(active >= 0.001 && active <= 0.5)) {
    throw new UsageError(
      'synthetic-active',
      `Cannot make a checkpoint with an active share of ${active}: 0.001 to 0.5 is wanted`,
      { active },
    );
  }
  const share = positionShare ?? defaultPositionShare;
  if (!(share >= 0 && share < 1)) {
    throw new UsageError(
      'synthetic-position-share',
      `Cannot make a checkpoint with a position's share of ${share}: a number from 0 to below 1 is wanted`,
      { positionShare: share },
    );
  }
  if (popularity?.kind === 'zipf' && !(popularity.exponent >= 0 && popularity.exponent <= 3)) {
    throw new UsageError(
      'synthetic-popularity',
      `Cannot make a checkpoint with a Zipf exponent of ${popularity.exponent}: a number from 0 to 3 is wanted`,
      { exponent: popularity.exponent },
    );
  }
  if (!Number.isSafeInteger(seed) || seed < 0) {
    throw new UsageError(
      'synthetic-seed',
      `Cannot make a checkpoint with the seed ${seed}: a whole number from 0 to 2^53 - 1 is wanted`,
      { seed },
    );
  }
  if (!['f32', 'f16', 'bf16'].includes(type)) throw new DefectError(`No storage type "${type}"`);
}
