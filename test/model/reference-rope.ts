import type { LlamaConfig } from '../../src/checkpoint/model-config.js';

/**
 * Cosine and sine of one rotary pair at one position, with libm and the formulas of transformers'
 * `modeling_rope_utils` written out once more; shares no code with src/.
 */
export function referenceRotation(
  config: LlamaConfig,
  position: number,
  pair: number,
): { cosine: number; sine: number } {
  const { ropeTheta: theta, rotary: dim, ropeScaling: rope } = config;
  const exponent = (2 * pair) / dim;
  let frequency = theta ** -exponent;
  let scale = 1;
  if (rope.type === 'linear') frequency /= rope.factor;
  if (rope.type === 'dynamic') {
    const length = Math.max(position + 1, rope.originalPositions);
    const base =
      theta * ((rope.factor * length) / rope.originalPositions - (rope.factor - 1)) ** (dim / (dim - 2));
    frequency = base ** -exponent;
  }
  if (rope.type === 'llama3') {
    const wavelength = (2 * Math.PI) / frequency;
    const turns = rope.originalPositions / wavelength;
    const low = rope.lowFrequencyFactor;
    const high = rope.highFrequencyFactor;
    // Below `low` turns the blend is all scaled, above `high` all kept: the clamped form of the three cases.
    const kept = Math.min(Math.max((turns - low) / (high - low), 0), 1);
    frequency *= kept + (1 - kept) / rope.factor;
  }
  if (rope.type === 'yarn') {
    const find = (turns: number): number =>
      (dim * Math.log(rope.originalPositions / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
    let low = find(rope.betaFast);
    let high = find(rope.betaSlow);
    if (rope.truncate) {
      low = Math.floor(low);
      high = Math.ceil(high);
    }
    low = Math.max(low, 0);
    high = Math.min(high, dim - 1);
    const ramp = Math.min(1, Math.max(0, (pair - low) / (low === high ? 0.001 : high - low)));
    frequency *= 1 - ramp + ramp / rope.factor;
    const mscale = (weight: number): number =>
      rope.factor <= 1 ? 1 : 0.1 * weight * Math.log(rope.factor) + 1;
    const derived =
      rope.mscale !== null && rope.mscale !== 0 && rope.mscaleAllDim !== null && rope.mscaleAllDim !== 0
        ? mscale(rope.mscale) / mscale(rope.mscaleAllDim)
        : mscale(1);
    scale = rope.attentionFactor ?? derived;
  }
  return { cosine: scale * Math.cos(position * frequency), sine: scale * Math.sin(position * frequency) };
}
