import { z } from 'zod';
import { InputError } from '../base/errors.js';
import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.js';

/** Larger than any size of a model, small enough that products of three stay exact where two are checked first. */
export const largestSize = 2 ** 31 - 1;

/** A count that must be there: 1 to 2^31 - 1, as a JSON number. */
export const size = z
  .number({ error: `a whole number from 1 to ${largestSize}` })
  .refine((value) => Number.isInteger(value) && value >= 1 && value <= largestSize, {
    error: `a whole number from 1 to ${largestSize}`,
  });

/** A positive, finite number. */
export const positive = z
  .number({ error: 'a number above 0' })
  .refine((value) => Number.isFinite(value) && value > 0, { error: 'a number above 0' });

export const finite = z.number({ error: 'a number' });

export const flag = z.boolean({ error: 'true or false' });

export const text = z.string({ error: 'a string' });

/** A token id, or null. */
export const tokenId = z
  .number({ error: 'a token id (a whole number from 0) or null' })
  .refine((value) => Number.isSafeInteger(value) && value >= 0, {
    error: 'a token id (a whole number from 0) or null',
  })
  .nullish();

const isTokenId = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;

/** One token id, a list of them, or null. */
export const tokenIds = z
  .custom<number | number[] | null>(
    (value) => value === null || isTokenId(value) || (Array.isArray(value) && value.every(isTokenId)),
    { error: 'a token id, a list of token ids, or null' },
  )
  .optional();

/** Where a configuration value stands: `config.json`, or `"rope_scaling" of config.json`. */
export type Place = string;

/**
 * Reads the fields of a schema, ignoring the others. The schema's messages say what is wanted; the error says the field
 * and what stands there. Throws `InputError` `config-field` (`config-missing` where a field is absent).
 */
export function readFields<T>(schema: z.ZodType<T>, value: JsonValue, place: Place): T {
  if (!isJsonObject(value)) {
    throw new InputError(
      'config-field',
      `Reading ${place} failed: it is ${show(value)}, an object is wanted`,
      {
        place,
      },
    );
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  const field = String(issue.path[0]);
  throw fieldError(place, field, value[field], issue.message);
}

/** The error of one field: names it, what stands there and what is wanted. */
export function fieldError(
  place: Place,
  field: string,
  value: JsonValue | undefined,
  wanted: string,
): InputError {
  return value === undefined
    ? new InputError('config-missing', `Reading ${place} failed: "${field}" is absent, wanted is ${wanted}`, {
        field,
      })
    : new InputError(
        'config-field',
        `Reading ${place} failed: "${field}" is ${show(value)}, wanted is ${wanted}`,
        { field, value },
      );
}

/** Two statements of one configuration that cannot both hold. */
export function contradiction(place: Place, problem: string, fields: readonly string[]): InputError {
  return new InputError('config-contradiction', `Reading ${place} failed: ${problem}`, { fields });
}

/** A value as an error shows it: strings in quotes, long ones cut. */
export function show(value: JsonValue | undefined): string {
  const shown = JSON.stringify(value) ?? 'absent';
  return shown.length > 100 ? `${shown.slice(0, 100)}…` : shown;
}

/** True where a key is there and not null: transformers writes null for "not set". */
export function isSet(object: JsonObject, key: string): boolean {
  return Object.hasOwn(object, key) && object[key] !== null;
}
