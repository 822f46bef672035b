import { log64, pow64 } from '../base/binary64.js';
import { InputError } from '../base/errors.js';
import type { LlamaConfig, RopeScaling } from '../checkpoint/model-config.js';

type Llama3Scaling = Extract<RopeScaling, { type: 'llama3' }>;
type YarnScaling = Extract<RopeScaling, { type: 'yarn' }>;

const twoPi = 6.283185307179586;

/**
 * Inverse frequencies of the rotary pairs, in binary64: angle of pair i at position p = p * result[i]. Formulas as in
 * transformers' `modeling_rope_utils`, where they are computed in binary32. `rotary / 2` values.
 *
 * Dynamic scaling depends on the length of the sequence. Here the length is that of a sequence ending at `position`,
 * so that a key's rotation depends on its own position alone and a prompt in one piece, in chunks or token by token
 * gives the same bits. transformers agrees with that when it decodes token by token; a prompt longer than the
 * original length it rotates as a whole by the frequencies of the prompt's full length.
 */
export function inverseFrequencies(config: LlamaConfig, position: number): Float64Array {
  const { ropeScaling: scaling, ropeTheta, rotary } = config;
  switch (scaling.type) {
    case 'default':
      return plainFrequencies(ropeTheta, rotary);
    case 'linear':
      return plainFrequencies(ropeTheta, rotary).map((frequency) => frequency / scaling.factor);
    case 'dynamic':
      return plainFrequencies(dynamicBase(ropeTheta, rotary, scaling, position + 1), rotary);
    case 'llama3':
      return plainFrequencies(ropeTheta, rotary).map((frequency) => llama3Frequency(frequency, scaling));
    case 'yarn':
      return yarnFrequencies(ropeTheta, rotary, scaling);
  }
}

/** Multiplies cosines and sines: 1, or YaRN's attention factor, given or derived from the scaling factor. */
export function rotationScale(scaling: RopeScaling): number {
  if (scaling.type !== 'yarn') return 1;
  const { factor, attentionFactor, mscale, mscaleAllDim } = scaling;
  if (attentionFactor !== null) return attentionFactor;
  // transformers takes 0 for absent here.
  if (mscale && mscaleAllDim) return yarnMscale(factor, mscale) / yarnMscale(factor, mscaleAllDim);
  return yarnMscale(factor, 1);
}

function yarnMscale(factor: number, mscale: number): number {
  return factor <= 1 ? 1 : 0.1 * mscale * log64(factor) + 1;
}

/** 1 / base^(2i / rotary) for i of 0 to rotary / 2 - 1. */
function plainFrequencies(base: number, rotary: number): Float64Array {
  return Float64Array.from({ length: rotary / 2 }, (_, pair) => 1 / pow64(base, (2 * pair) / rotary));
}

/** NTK-aware scaling of the base for a sequence of `length` positions (bloc97, "dynamic NTK"). */
function dynamicBase(
  base: number,
  rotary: number,
  scaling: { factor: number; originalPositions: number },
  length: number,
): number {
  const { factor, originalPositions } = scaling;
  if (length <= originalPositions) return base;
  if (rotary <= 2) {
    throw new InputError(
      'unusable-rope-scaling',
      `Cannot scale rotary positions dynamically: ${rotary} rotated elements a head, it takes at least 4`,
      { rotary },
    );
  }
  return base * pow64((factor * length) / originalPositions - (factor - 1), rotary / (rotary - 2));
}

/** Keeps short wavelengths, divides long ones by the factor, blends those between (Llama 3.1). */
function llama3Frequency(frequency: number, scaling: Llama3Scaling): number {
  const { factor, lowFrequencyFactor, highFrequencyFactor, originalPositions } = scaling;
  const wavelength = twoPi / frequency;
  if (wavelength < originalPositions / highFrequencyFactor) return frequency;
  if (wavelength > originalPositions / lowFrequencyFactor) return frequency / factor;
  const smooth =
    (originalPositions / wavelength - lowFrequencyFactor) / (highFrequencyFactor - lowFrequencyFactor);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}

/** Blends interpolated and original frequencies by a ramp over the pairs (Peng et al., 2023). */
function yarnFrequencies(base: number, rotary: number, scaling: YarnScaling): Float64Array {
  const { factor, betaFast, betaSlow, truncate, originalPositions } = scaling;
  const correction = (rotations: number): number =>
    (rotary * log64(originalPositions / (rotations * twoPi))) / (2 * log64(base));
  const fast = correction(betaFast);
  const slow = correction(betaSlow);
  const low = Math.max(truncate ? Math.floor(fast) : fast, 0);
  let high = Math.min(truncate ? Math.ceil(slow) : slow, rotary - 1);
  if (low === high) high += 0.001;
  return plainFrequencies(base, rotary).map((frequency, pair) => {
    const ramp = Math.min(Math.max((pair - low) / (high - low), 0), 1);
    const kept = 1 - ramp;
    return (frequency / factor) * (1 - kept) + frequency * kept;
  });
}
