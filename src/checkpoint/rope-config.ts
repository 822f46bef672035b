import { z } from 'zod';
import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonObject } from '../base/json.js';
import {
  contradiction,
  fieldError,
  finite,
  flag,
  isSet,
  largestSize,
  positive,
  readFields,
  size,
  text,
} from './config-fields.js';
import type { RopeScaling } from './model-config.js';

/** Rotary embedding as a configuration states it; `maxPositions` is the longest sequence, after scaling. */
export interface RopeConfig {
  readonly theta: number;
  readonly scaling: RopeScaling;
  readonly maxPositions: number;
  /** Share of a head that is rotated, from the rope parameters; undefined where they do not say. */
  readonly partialFactor: number | undefined;
}

const factor = z
  .number({ error: 'a number from 1' })
  .refine((value) => Number.isFinite(value) && value >= 1, {
    error: 'a number from 1',
  });

/** At 1 all frequencies are equal, and yarn divides by the logarithm. */
const base = z.number({ error: 'a number above 1' }).refine((value) => Number.isFinite(value) && value > 1, {
  error: 'a number above 1',
});

const schema = z.object({
  rope_type: text.nullish(),
  type: text.nullish(),
  rope_theta: base.nullish(),
  partial_rotary_factor: positive.nullish(),
  factor: factor.nullish(),
  original_max_position_embeddings: size.nullish(),
  low_freq_factor: positive.nullish(),
  high_freq_factor: positive.nullish(),
  attention_factor: positive.nullish(),
  beta_fast: positive.nullish(),
  beta_slow: positive.nullish(),
  mscale: finite.nullish(),
  mscale_all_dim: finite.nullish(),
  truncate: flag.nullish(),
});
type Fields = z.infer<typeof schema>;

const spellings = ['rope_parameters', 'rope_scaling'] as const;

/**
 * Reads `rope_theta` and the scaling, from `rope_scaling` (transformers 4) and `rope_parameters` (transformers 5). Where
 * both stand they must agree. Throws `InputError`: `unknown-rope-type`, `config-contradiction`, or of a field.
 */
export function readRopeConfig(config: JsonObject, maxPositions: number, defaultTheta: number): RopeConfig {
  const stated = spellings.filter((spelling) => isSet(config, spelling));
  const read = stated.map((spelling) => readParameters(config, spelling, maxPositions));
  const [first, second] = read;
  if (first !== undefined && second !== undefined) {
    if (JSON.stringify(first.scaling) !== JSON.stringify(second.scaling)) {
      throw contradiction(
        'config.json',
        `"rope_parameters" says ${JSON.stringify(first.scaling)}, "rope_scaling" says ${JSON.stringify(second.scaling)}; one of them, or equal ones, are wanted`,
        [...spellings],
      );
    }
  }
  const { rope_theta: top } = readFields(z.object({ rope_theta: base.nullish() }), config, 'config.json');
  return {
    theta:
      agree('rope_theta', [
        ['"rope_theta"', top],
        ...read.map((parameters, index): Stated => [`"${stated[index]}"`, parameters.theta]),
      ]) ?? defaultTheta,
    scaling: first?.scaling ?? { type: 'default' },
    maxPositions: first?.maxPositions ?? maxPositions,
    partialFactor: agree(
      'partial_rotary_factor',
      read.map((parameters, index): Stated => [`"${stated[index]}"`, parameters.partialFactor]),
    ),
  };
}

type Stated = readonly [place: string, value: number | null | undefined];

/** The one value that all places which state it agree on. */
export function agree(field: string, values: readonly Stated[]): number | undefined {
  const stated = values.filter((entry): entry is readonly [string, number] => typeof entry[1] === 'number');
  const first = stated[0];
  const other = stated.find((entry) => entry[1] !== first?.[1]);
  if (first !== undefined && other !== undefined) {
    throw contradiction(
      'config.json',
      `${first[0]} gives ${field} ${first[1]}, ${other[0]} gives ${other[1]}; one value is wanted`,
      [field],
    );
  }
  return first?.[1];
}

interface Parameters {
  readonly scaling: RopeScaling;
  readonly maxPositions: number;
  readonly theta: number | undefined;
  readonly partialFactor: number | undefined;
}

function readParameters(config: JsonObject, spelling: string, maxPositions: number): Parameters {
  const place = `"${spelling}" of config.json`;
  const value = config[spelling]!;
  const fields = readFields(schema, value, place);
  const nested = isJsonObject(value) ? Object.keys(value).find((key) => isJsonObject(value[key])) : undefined;
  if (nested !== undefined) {
    throw fieldError(place, nested, (value as JsonObject)[nested], 'one rotary embedding for all layers');
  }
  const { rope_type: ropeType, type: oldType } = fields;
  if (ropeType != null && oldType != null && ropeType !== oldType) {
    throw contradiction(
      place,
      `"rope_type" is "${ropeType}", "type" is "${oldType}"; one of them is wanted`,
      ['rope_type', 'type'],
    );
  }
  // transformers 5 writes rope_parameters with a type always; a bare rope_theta there is the default embedding.
  const type = ropeType ?? oldType ?? (fields.factor == null ? 'default' : undefined);
  if (type === undefined) throw fieldError(place, 'rope_type', undefined, wantedTypes);
  const scaling = scalingOf(type, fields, maxPositions, place);
  return {
    scaling,
    maxPositions: scaledPositions(
      scaling,
      fields.original_max_position_embeddings ?? null,
      maxPositions,
      place,
    ),
    theta: fields.rope_theta ?? undefined,
    partialFactor: fields.partial_rotary_factor ?? undefined,
  };
}

/**
 * The longest sequence. Linear scaling, and dynamic and yarn where the stated length is the one before scaling, extend
 * it by the factor; elsewhere `max_position_embeddings` already is the length after scaling.
 */
function scaledPositions(
  scaling: RopeScaling,
  original: number | null,
  stated: number,
  place: string,
): number {
  const beforeScaling = original === null || original === stated;
  const extended =
    scaling.type === 'linear' || ((scaling.type === 'dynamic' || scaling.type === 'yarn') && beforeScaling);
  if (!extended) return stated;
  const positions = Math.floor(stated * scaling.factor);
  if (positions > largestSize) {
    throw contradiction(
      place,
      `"factor" ${scaling.factor} extends ${stated} positions to ${positions}, at most ${largestSize} are wanted`,
      ['factor', 'max_position_embeddings'],
    );
  }
  return positions;
}

const wantedTypes = '"default", "linear", "dynamic", "llama3" or "yarn"';

function scalingOf(type: string, fields: Fields, maxPositions: number, place: string): RopeScaling {
  const need = <K extends keyof Fields>(field: K, wanted: string): NonNullable<Fields[K]> => {
    const value = fields[field];
    if (value == null) throw fieldError(place, field, undefined, wanted);
    return value;
  };
  const wantedFactor = `the factor of ${type} scaling, a number from 1`;
  const originalPositions = fields.original_max_position_embeddings ?? maxPositions;
  switch (type) {
    case 'default':
      return { type };
    case 'linear':
      return { type, factor: need('factor', wantedFactor) };
    case 'dynamic':
      return { type, factor: need('factor', wantedFactor), originalPositions };
    case 'llama3': {
      const lowFrequencyFactor = need('low_freq_factor', 'a number above 0');
      const highFrequencyFactor = need('high_freq_factor', 'a number above 0');
      if (highFrequencyFactor <= lowFrequencyFactor) {
        throw contradiction(
          place,
          `"high_freq_factor" is ${highFrequencyFactor}, a number above "low_freq_factor" (${lowFrequencyFactor}) is wanted`,
          ['low_freq_factor', 'high_freq_factor'],
        );
      }
      return {
        type,
        factor: need('factor', wantedFactor),
        lowFrequencyFactor,
        highFrequencyFactor,
        originalPositions: need('original_max_position_embeddings', 'the length before scaling'),
      };
    }
    case 'yarn':
      return {
        type,
        factor: need('factor', wantedFactor),
        attentionFactor: fields.attention_factor ?? null,
        betaFast: fields.beta_fast ?? 32,
        betaSlow: fields.beta_slow ?? 1,
        mscale: fields.mscale ?? null,
        mscaleAllDim: fields.mscale_all_dim ?? null,
        truncate: fields.truncate ?? true,
        originalPositions,
      };
    default:
      throw new InputError(
        'unknown-rope-type',
        `Reading ${place} failed: the type is ${JSON.stringify(type.slice(0, 100))}, wanted is ${wantedTypes}`,
        { ropeType: type },
      );
  }
}
