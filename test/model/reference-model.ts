import type { LlamaConfig, ModelConfig } from '../../src/checkpoint/model-config.js';
import { referenceRotation } from './reference-rope.js';
import type { TinyWeights } from './tiny-models.js';

/**
 * The models once more, as plainly as can be: binary64, a whole sequence at once, no cache, no blocks, libm. Shares
 * no code with src/. Returns the logits of every position.
 */
export function referenceLogits(weights: TinyWeights, ids: readonly number[]): Float64Array[] {
  const { config } = weights.description;
  const get = (id: string): Float32Array => {
    const found = weights.values.get(id);
    if (found === undefined) throw new Error(`No weight "${id}"`);
    return found;
  };
  const has = (id: string): boolean => weights.values.has(id);
  const linear = (id: string, x: Float64Array): Float64Array => {
    const w = get(id);
    const y = new Float64Array(w.length / x.length);
    for (let o = 0; o < y.length; o++) {
      let sum = has(`${id}.bias`) ? get(`${id}.bias`)[o]! : 0;
      for (let i = 0; i < x.length; i++) sum += w[o * x.length + i]! * x[i]!;
      y[o] = sum;
    }
    return y;
  };
  const norm = (id: string, x: Float64Array): Float64Array => {
    const rms = config.family === 'llama' && config.norm === 'rms';
    const mean = rms ? 0 : x.reduce((a, b) => a + b, 0) / x.length;
    const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
    return x.map((value, i) => {
      const unit = (value - mean) / Math.sqrt(variance + config.normEpsilon);
      const gamma = has(`${id}.gamma`) ? get(`${id}.gamma`)[i]! : 1;
      const beta = has(`${id}.beta`) ? get(`${id}.beta`)[i]! : 0;
      return unit * gamma + beta;
    });
  };
  const row = (id: string, index: number, columns: number): Float64Array =>
    Float64Array.from(get(id).subarray(index * columns, (index + 1) * columns));

  const opt = config.family === 'opt' ? config : null;
  const llama = config.family === 'llama' ? config : null;
  const postNorm = opt !== null && !opt.preNorm;
  let hidden = ids.map((id, position) => {
    let x = row('token-embedding', id, opt?.embeddingSize ?? config.hiddenSize);
    if (has('project-in')) x = linear('project-in', x);
    return opt === null
      ? x
      : plus(x, row('position-embedding', position + opt.positionOffset, config.hiddenSize));
  });
  for (let layer = 0; layer < config.layers; layer++) {
    const at = `layers.${layer}`;
    const inputs = hidden.map((x) => (postNorm ? x : norm(`${at}.attention-norm`, x)));
    const attended = attention(
      config,
      inputs.map((x) => linear(`${at}.query`, x)),
      inputs.map((x) => linear(`${at}.key`, x)),
      inputs.map((x) => linear(`${at}.value`, x)),
    );
    hidden = hidden.map((x, t) => plus(x, linear(`${at}.output`, attended[t]!)));
    if (postNorm) hidden = hidden.map((x) => norm(`${at}.attention-norm`, x));
    hidden = hidden.map((x) => {
      const input = postNorm ? x : norm(`${at}.ffn-norm`, x);
      let active = linear(llama?.gated ? `${at}.gate` : `${at}.first`, input).map((value) =>
        activate(config, value),
      );
      if (llama?.gated) {
        const up = linear(`${at}.up`, input);
        active = active.map((value, i) => value * up[i]!);
      }
      const sum = plus(x, linear(`${at}.second`, active));
      return postNorm ? norm(`${at}.ffn-norm`, sum) : sum;
    });
  }
  return hidden.map((x) => {
    let y = (opt?.finalNorm ?? true) ? norm('final-norm', x) : x;
    if (has('project-out')) y = linear('project-out', y);
    return linear('head', y);
  });
}

function plus(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((value, i) => value + b[i]!);
}

function activate(config: ModelConfig, x: number): number {
  switch (config.activation) {
    case 'relu':
      return Math.max(x, 0);
    case 'relu2':
      return Math.max(x, 0) ** 2;
    case 'fatrelu':
      return x > config.activationThreshold ? x : 0;
    case 'silu':
      return x / (1 + Math.exp(-x));
    case 'quick_gelu':
      return x / (1 + Math.exp(-1.702 * x));
    case 'gelu_tanh':
      return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
    case 'tanh':
      return Math.tanh(x);
    default:
      throw new Error(`The reference has no ${config.activation}`);
  }
}

function attention(
  config: ModelConfig,
  queries: readonly Float64Array[],
  keys: readonly Float64Array[],
  values: readonly Float64Array[],
): Float64Array[] {
  const { heads, kvHeads, headDim } = config;
  const head = (x: Float64Array, index: number, position: number, rotated: boolean): Float64Array => {
    const part = x.slice(index * headDim, (index + 1) * headDim);
    return rotated && config.family === 'llama' ? rotate(config, part, position) : part;
  };
  return queries.map((query, t) => {
    const out = new Float64Array(heads * headDim);
    for (let h = 0; h < heads; h++) {
      const kvHead = Math.floor((h * kvHeads) / heads);
      const q = head(query, h, t, true);
      const scores: number[] = [];
      for (let p = 0; p <= t; p++) {
        const k = head(keys[p]!, kvHead, p, true);
        scores.push(q.reduce((sum, value, i) => sum + value * k[i]!, 0) / Math.sqrt(headDim));
      }
      const top = Math.max(...scores);
      const powers = scores.map((score) => Math.exp(score - top));
      const total = powers.reduce((a, b) => a + b, 0);
      for (let p = 0; p <= t; p++) {
        const v = head(values[p]!, kvHead, p, false);
        for (let i = 0; i < headDim; i++) {
          out[h * headDim + i] = out[h * headDim + i]! + (powers[p]! / total) * v[i]!;
        }
      }
    }
    return out;
  });
}

/** Complex rotation of the halves of a head's first `rotary` elements. */
function rotate(config: LlamaConfig, x: Float64Array, position: number): Float64Array {
  const half = config.rotary / 2;
  const out = x.slice();
  for (let i = 0; i < half; i++) {
    const { cosine, sine } = referenceRotation(config, position, i);
    out[i] = x[i]! * cosine - x[i + half]! * sine;
    out[i + half] = x[i + half]! * cosine + x[i]! * sine;
  }
  return out;
}
