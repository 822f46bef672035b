import { widenStored } from '../../src/base/half.js';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';

/** What a forward pass of `referenceForward` showed. */
export interface ReferenceRun {
  /** `[layer][token]`: the active neurons of each token. */
  readonly active: readonly (readonly ReadonlySet<number>[])[];
  readonly logits: readonly Float64Array[];
  /** Largest magnitude of a residual stream, key or value element. */
  readonly largest: number;
}

/** OPT (pre-norm, biased, tied) in binary64, from the definition of the model; for small models. */
export async function referenceForward(folder: string, tokens: readonly number[]): Promise<ReferenceRun> {
  const checkpoint = await openCheckpoint(folder);
  const { hiddenSize: d, layers, heads, ffnSize, vocabSize, normEpsilon } = checkpoint.config;
  const load = async (name: string) => {
    const tensor = checkpoint.tensor(`model.decoder.${name}`);
    return widenStored(tensor.type!, await checkpoint.readTensor(tensor));
  };
  const linear = (w: Float32Array, b: Float32Array, x: Float64Array, outputs: number) => {
    const y = new Float64Array(outputs);
    for (let j = 0; j < outputs; j++) {
      let sum = b[j] ?? 0;
      for (let i = 0; i < x.length; i++) sum += w[j * x.length + i]! * x[i]!;
      y[j] = sum;
    }
    return y;
  };
  const norm = (x: Float64Array, gamma: Float32Array, beta: Float32Array) => {
    const mean = x.reduce((sum, value) => sum + value, 0) / d;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / d;
    return x.map((value, i) => ((value - mean) / Math.sqrt(variance + normEpsilon)) * gamma[i]! + beta[i]!);
  };
  let largest = 0;
  const watch = (values: Float64Array) => {
    for (const value of values) largest = Math.max(largest, Number.isNaN(value) ? Infinity : Math.abs(value));
  };

  const table = await load('embed_tokens.weight');
  const positions = await load('embed_positions.weight');
  const stream = tokens.map((id, p) =>
    Float64Array.from({ length: d }, (_, i) => table[id * d + i]! + positions[(p + 2) * d + i]!),
  );
  const active: ReadonlySet<number>[][] = [];
  const size = d / heads;
  for (let layer = 0; layer < layers; layer++) {
    const at = (name: string) => load(`layers.${layer}.${name}`);
    const project = async (name: string) => {
      const [w, b] = [await at(`${name}.weight`), await at(`${name}.bias`)];
      return (x: Float64Array, outputs: number) => linear(w, b, x, outputs);
    };
    const attentionNorm = [
      await at('self_attn_layer_norm.weight'),
      await at('self_attn_layer_norm.bias'),
    ] as const;
    const [q, k, v, o] = await Promise.all(
      ['q_proj', 'k_proj', 'v_proj', 'out_proj'].map((name) => project(`self_attn.${name}`)),
    );
    const inputs = stream.map((x) => norm(x, ...attentionNorm));
    const queries = inputs.map((x) => q!(x, d));
    const keys = inputs.map((x) => k!(x, d));
    const values = inputs.map((x) => v!(x, d));
    for (const row of [...keys, ...values]) watch(row);
    stream.forEach((x, t) => {
      const mixed = new Float64Array(d);
      for (let head = 0; head < heads; head++) {
        const scores = Array.from({ length: t + 1 }, (_, p) => {
          let sum = 0;
          for (let i = head * size; i < (head + 1) * size; i++) sum += queries[t]![i]! * keys[p]![i]!;
          return sum / Math.sqrt(size);
        });
        const peak = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - peak));
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        for (let i = head * size; i < (head + 1) * size; i++) {
          for (let p = 0; p <= t; p++) mixed[i]! += (weights[p]! / total) * values[p]![i]!;
        }
      }
      o!(mixed, d).forEach((value, i) => {
        x[i]! += value;
      });
    });
    const ffnNorm = [await at('final_layer_norm.weight'), await at('final_layer_norm.bias')] as const;
    const [first, second] = [await project('fc1'), await project('fc2')];
    const sets: Set<number>[] = [];
    for (const x of stream) {
      const neurons = first(norm(x, ...ffnNorm), ffnSize).map((value) => Math.max(0, value));
      sets.push(new Set([...neurons.keys()].filter((j) => neurons[j]! > 0)));
      second(neurons, d).forEach((value, i) => {
        x[i]! += value;
      });
      watch(x);
    }
    active.push(sets);
  }
  const finalNorm = [await load('final_layer_norm.weight'), await load('final_layer_norm.bias')] as const;
  const logits = stream.map((x) => linear(table, new Float32Array(0), norm(x, ...finalNorm), vocabSize));
  await checkpoint.close();
  return { active, logits, largest };
}
